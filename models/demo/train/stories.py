"""Short stories in the simple English of a picture book: a hero, a plot, an ending."""
import random

from grammar import expand, sentence_case
from words import ADJ, BOYS, FOODS, FRUITS, GIRLS, HEROES, PLACES, TOYS

OPENINGS = [
    "Once upon a time, there was a {adj} {kind} named {n}. {n} lived [in a small house near|at the edge of|not far from|close to] the {place}.",
    "Once upon a time, a {adj} {kind} named {n} lived [near|by|close to] the {place}.",
    "Once upon a time, in a [small|quiet|green|far away] {land}, there lived a {kind} named {n}. {n} was very {adj2}.",
    "Once there was a {kind} called {n}. {He} was {adj} and {adj2}, and [everyone liked {him}|{he} had many friends|{he} loved to play outside].",
    "[Long ago|Many years ago|A long time ago], a {adj} {kind} named {n} lived [near|by] the {place}.",
    "{n} was a {adj} {kind}. {He} lived [near|by|close to] the {place} [with {his} mother|with {his} family|with {his} grandmother|all alone].",
    "There was once a {adj} {kind} who lived [near|by] the {place}. {His} name was {n}.",
]
DAY = "[One|One sunny|One rainy|One bright|One cold|One quiet|One windy] [day|morning|afternoon]"

# Each plot is a list of beats; each beat a grammar. m = friend, toy, food, fruit, p2 = a second place.
PLOTS = {
    "lost": [
        "{n} had a {toy}. [It was {his} favourite thing in the whole world.|{He} took it everywhere.|{He} loved it very much.]",
        DAY + ", [the {toy} was gone|{n} could not find the {toy}|{n} lost the {toy}]. [{n} felt very sad.|{He} looked under the bed, but it was not there.|{He} began to cry.]",
        "[Then|Soon|Just then] {m} the {mk} came by. \"[Why are you so sad|What is wrong|Why do you cry], {n}?\" asked {m}. \"I lost my {toy},\" said {n}.",
        "\"[Do not worry|Do not cry|Cheer up],\" said {m}. \"[I will help you|We will look for it together|Let us find it together].\"",
        "They looked [near the {p2}|behind the big tree|under the bridge] and [in the tall grass|behind the old wall|next to the well]. [At last|Finally|After a long time], {m} [saw|found] [something|it] [in a bush|under a leaf|behind a stone]. It was the {toy}!",
        "{n} was so happy that {he} [danced|jumped up and down|laughed out loud]. \"Thank you, {m}!\" {he} said. [They played together until the sun went down.|From then on they shared the {toy}.]",
    ],
    "share": [
        DAY + ", {n} [made|baked|got] [a big plate of|some] {food}. [It smelled so good.|It was still warm.|{He} wanted to eat it all alone.]",
        "[On the way|Near the {p2}|Outside] {he} met {m} the {mk}. {m} [looked hungry|was very hungry|had nothing to eat].",
        "{n} [thought for a moment|looked at the {food}|remembered what {his} mother always said]. \"[Would you like some|Do you want to share|Come and eat with me]?\" {he} asked.",
        "{m} [smiled|was very happy|could not believe it]. They sat down [under a tree|by the water|on a big stone] and ate [together|the {food} together].",
        "\"[This is the best {food} ever|It tastes better with a friend|You are very kind],\" said {m}. {n} [smiled too|felt warm inside|agreed].",
        "[The next day|A week later|Some days later], {m} came back with a basket of {fruit}. \"[This is for you|Now I can share too|Thank you for sharing with me],\" {m} said.",
    ],
    "learn": [
        "{n} wanted to learn to [swim|sing|dance|climb|read|paint|whistle|skate]. But [it was very hard|{he} was a little afraid|{he} did not know how].",
        DAY + ", {n} went to the {p2} to [try|practise]. {He} tried [once|and tried|again and again], but [{he} fell down|nothing worked|it went wrong].",
        "{m} the {mk} [was watching|sat close by|saw it]. \"[Do not give up|Try again|I could not do it at first either],\" said {m}. \"[I will show you|Start slowly|A little every day is enough].\"",
        "So {n} [practised every day|came back each morning|tried again the next day]. [Little by little|Day after day|Slowly], {he} got better.",
        "[At last|One day|In the end], {n} could do it! [Everyone clapped|{m} cheered|All {his} friends came to see it].",
        "{n} [was very proud|smiled from ear to ear]. \"[I did it|I can do it|Thank you, {m}]!\" {he} said.",
    ],
    "seed": [
        DAY + ", {n} found a [tiny|small|strange|shiny] seed near the {p2}. \"[What will it become|I wonder what this is|I will plant it],\" {he} said.",
        "{n} put the seed in the ground and gave it water. [Every day {he} came to look.|{He} waited and waited.|But nothing happened.]",
        "{m} the {mk} laughed. \"[It is only a seed|Nothing will grow there|You must wait],\" said {m}. But {n} [did not give up|gave it more water|was patient].",
        "[After some days|One morning|Then, after the rain], a [small|tiny] green leaf came out. It grew and grew until it was a [big tree|tall flower|tree full of {fruit}].",
        "All the animals came to [look|sit in its shade|eat the {fruit}]. {m} said, \"[I was wrong|You were right|I am sorry that I laughed].\"",
        "{n} [smiled|was happy]. \"[Good things need time|Small things can become big|You only have to wait and care],\" {he} said.",
    ],
    "storm": [
        DAY + ", a big storm came. [The wind was loud|The sky was dark|The rain did not stop], and {n} was [afraid|worried|at home].",
        "[Suddenly|Then] {he} heard a small voice. \"Help! Help!\" It was {m} the {mk}, who was [stuck in the mud|alone in the rain|on the other side of the river].",
        "{n} was [scared|a little afraid], but {he} [ran outside|took a rope|went out into the rain]. \"[Hold on|I am coming|Take my hand], {m}!\" {he} called.",
        "{n} [pulled and pulled|pulled as hard as {he} could|held on tight], and [at last|finally] {m} was safe.",
        "They went [inside|home] and [sat by the fire|drank hot tea|ate warm soup]. Outside the wind blew, but inside it was [warm|cosy].",
        "In the morning the sun came out, and there was a rainbow over the {p2}. \"[You are very brave|You saved me|You are a true friend],\" said {m}.",
    ],
    "dark": [
        "{n} was afraid of the dark. [Every night {he} hid under the blanket.|{He} could not sleep without a light.]",
        "[One night|One dark night], {he} heard a sound at the window. Tap, tap, tap. [\"Who is there?\"|\"Hello?\"] asked {n}.",
        "It was {m} the {mk}. \"[Come outside|Come with me|I want to show you something],\" said {m}. \"[You will see something beautiful|Do not be afraid].\"",
        "They [walked|went] to the {p2} and looked up. The sky was full of stars. [One of them was falling|They were like little lamps|There were more than {n} could count].",
        "\"[Without the dark we could not see the stars|The dark is only the night's blanket|The night is not so bad],\" said {m}.",
        "From that night on, {n} was not afraid [any more|of the dark any more]. {He} [looked at the stars|said good night to the stars] and slept well.",
    ],
    "race": [
        DAY + ", {m} the {mk} said, \"[I am the fastest|Nobody is as fast as I am|Let us have a race].\" {n} said, \"[Let us run to the {p2}|I will race with you|We will see].\"",
        "The race began. {m} ran very fast and was soon far away. {n} [was slow|ran slowly] but {he} [did not stop|kept going].",
        "On the way {m} [saw some {fruit} and stopped to eat|was tired and fell asleep|stopped to talk to a bird]. \"[I have a lot of time|{n} is so slow],\" thought {m}.",
        "{n} went on, step by step. [{He} passed {m}|{He} did not look back|{He} thought only of the next step].",
        "When {m} [woke up|looked up], it was too late. {n} was already at the {p2}! [Everyone cheered|All the animals clapped].",
        "\"[Well done|You won|I learned something today],\" said {m}. {n} smiled. \"[Slow and steady is enough|Let us be friends|Next time we run together],\" {he} said.",
    ],
    "boat": [
        "{n} had a dream. {He} wanted to [build a boat|build a little boat|make a raft] and [see the sea|sail down the river|see what is behind the hills].",
        DAY + ", {he} began to work. {He} took wood, a rope and [an old sheet|a big leaf|a blanket]. {m} the {mk} [brought some nails|helped {him}|held the wood].",
        "[After three days|After a week|In the evening] the boat was ready. They gave it a name: \"[Star|Brave Heart|Sunshine|Little Cloud]\".",
        "They sailed [past|around] the {p2} and saw [a big fish|green hills|birds in the sky|an island]. [The water was calm|The wind was soft|The sun was warm].",
        "[But then|Suddenly] the boat [hit a stone|had a hole|began to turn in circles]. \"[Do not worry|Stay calm],\" said {m}. \"[We can fix it|We can swim].\" And so they did.",
        "[When they came home|In the evening|Back at home], they told everyone about [the trip|their adventure]. It was the best day of the year.",
    ],
    "birthday": [
        "It was {n}'s birthday. [{He} woke up early|The sun was shining|{He} was very excited]. But [nobody said anything|the house was quiet|no one was there].",
        "{n} went to the {p2} and sat down. \"[Everyone forgot|They all forgot my birthday|Nobody thinks of me],\" {he} said [sadly|to {himself}].",
        "[Then|Just then] {m} the {mk} came. \"[Come with me|Come quickly|I need your help],\" said {m}. {n} [got up and followed|was surprised but went along].",
        "When they [opened the door|came home], all {his} friends jumped out. \"Surprise! Happy birthday, {n}!\" they [shouted|called].",
        "There was {food}, [music|a big table] and a present. In the box was a {toy}! {n} [laughed|was so happy].",
        "They [sang and danced|played games|ate and laughed] until [late|the moon came out]. \"[I have the best friends in the world|This is my best birthday],\" said {n}.",
    ],
    "honest": [
        DAY + ", {n} played with a ball in the house. [Crash!|Oh no!] [The blue vase fell down|A cup fell from the table|The window broke].",
        "{n} was [scared|afraid]. \"[What shall I do?|Nobody saw it.|Shall I hide it?]\" {he} thought.",
        "Then {m} the {mk} came in. \"[What happened here|Who did this|What was that noise]?\" asked {m}.",
        "{n} looked at the floor. {He} wanted to say that it was the wind. But {he} said, \"[It was me|I did it]. I am sorry.\"",
        "{m} was quiet for a moment and then smiled. \"[Thank you for telling the truth|It is good that you told me|Things can be fixed],\" said {m}.",
        "Together they [cleaned the floor|fixed it with glue|put the pieces together]. {n} felt [much better|light and happy]. [Telling the truth was not so hard.|From then on {he} always told the truth.]",
    ],
    "magic": [
        DAY + ", {n} found [an old key|a small golden key|a strange stone|an old lamp] near the {p2}. [It was warm and shiny|It began to glow|It made a soft sound].",
        "[Suddenly|Then] a small voice said, \"[I can give you one wish|You may make one wish|Tell me your wish].\" {n} [could not believe it|was very surprised].",
        "{n} thought about [a mountain of {food}|a castle|all the toys in the world]. But then {he} saw {m} the {mk}, who [was sick|was sad|had hurt a leg].",
        "\"[I wish that {m} is well again|My wish is for {m}|Please make {m} happy again],\" said {n}. There was a [bright light|flash|soft wind].",
        "{m} [jumped up|began to smile|laughed]. \"[I feel so good|Look at me|It does not hurt any more]!\" said {m}.",
        "The voice said, \"[You have a good heart|A kind wish is the best wish].\" And the magic [was gone|went to sleep], but the two friends [were happy|stayed together].",
    ],
    "friend": [
        "{n} was new [in the village|near the {p2}|in town] and had no friends. [{He} felt lonely.|{He} sat alone every day.]",
        DAY + ", {he} saw {m} the {mk}, who was playing with a {toy}. {n} [wanted to say hello|was too shy to say hello|watched from behind a tree].",
        "The {toy} [rolled to|fell near|landed next to] {n}. {n} picked it up. \"[Is this yours?|Here you are.|Did you lose this?]\" {he} asked.",
        "\"Yes, thank you!\" said {m}. \"[Do you want to play with me|What is your name|Are you new here]?\" \"[I am {n}|Yes, please|I would love to],\" said {n}.",
        "They played all day. They [ran to the {p2}|built a small house|ate {food}|climbed a hill] and [laughed a lot|told each other stories].",
        "[In the evening|When the sun went down], {m} said, \"[See you tomorrow|Come back tomorrow], {n}!\" {n} [was not lonely any more|went home with a big smile].",
    ],
    "snow": [
        "[One winter morning|One cold morning|In winter], {n} looked out of the window. Everything was white! \"Snow!\" {he} shouted and ran outside.",
        "{m} the {mk} was there too. \"[Let us make a snowman|Let us build a snow house|Let us slide down the hill],\" said {m}.",
        "They [rolled a big ball|worked all morning|pushed the snow together]. They used a carrot for the nose and [two stones|two nuts] for the eyes.",
        "{n} gave it [a {toy}|a scarf|an old hat]. \"[Now he is not cold|He looks like my uncle|He is perfect],\" {he} said, and they both laughed.",
        "[In the afternoon|Later] they were cold and went inside. {n}'s [mother|grandmother|father] made [hot chocolate|hot tea|soup] and gave them {food}.",
        "[Some days later|In spring] the sun came and the snowman was gone. \"[He will come back next winter|See you next year],\" said {n}.",
    ],
    "treasure": [
        DAY + ", {n} found an old map [under the bed|in a book|in a bottle|behind a picture]. It showed the way to a treasure [near the {p2}|under a big tree|on a hill].",
        "{n} showed it to {m} the {mk}. \"[A treasure|We must find it|Let us go at once]!\" said {m}. They took [a lamp|a rope], some {fruit} and [went off|started to walk].",
        "They [walked through the {p2}|crossed a small bridge|climbed over rocks]. It was [a long way|hot|not easy], but they [sang songs|helped each other|did not stop].",
        "[At last|Finally] they came to [a big tree|an old stone|a cave]. They began to dig. [After a while|Soon] they found [a box|an old wooden box|a small chest].",
        "In the box was no gold. There was only [a letter|a note]. It said: \"[The real treasure is the friend beside you|You found it together, and that is the treasure].\"",
        "{n} and {m} looked at each other and [laughed|smiled]. \"[That is true|The map was right],\" said {n}, and they went home for {food}.",
    ],
}
ENDINGS = ["", "", "The end.", "And they lived happily ever after.", "They were friends for ever.", "And that was a good day.",
           "{n} fell asleep with a smile.", "After that, {n} and {m} met every day.", "{n} never forgot that day."]


def name(rng: random.Random, sex: str) -> str:
    return rng.choice(GIRLS if sex == "f" else BOYS)


def cast(rng: random.Random, kind: str | None = None, hero: str | None = None) -> dict:
    sex = "f" if hero in GIRLS else "m" if hero in BOYS else rng.choice("fm")
    kind = kind or rng.choice(HEROES + ["girl" if sex == "f" else "boy"] * 12)
    if kind in ("girl", "boy", "princess", "king"):
        sex = "f" if kind in ("girl", "princess") else "m"
    hero = hero or name(rng, sex)
    friend = hero
    while friend == hero:
        friend = name(rng, rng.choice("fm"))
    places = rng.sample(PLACES, 2)
    he, him, his = ("she", "her", "her") if sex == "f" else ("he", "him", "his")
    return {"n": hero, "kind": kind, "he": he, "him": him, "his": his, "himself": "herself" if sex == "f" else "himself",
            "He": he.title(), "His": his.title(), "m": friend,
            "mk": rng.choice([h for h in HEROES if h != kind]), "place": places[0], "p2": places[1], "toy": rng.choice(TOYS),
            "food": rng.choice(FOODS), "fruit": rng.choice(FRUITS), "adj": rng.choice(ADJ), "adj2": rng.choice(ADJ),
            "land": rng.choice(["village", "valley", "town", "forest", "land"])}


def story(rng: random.Random, kind: str | None = None, hero: str | None = None, short: bool = False) -> str:
    slots = cast(rng, kind, hero)
    opening = rng.choice(OPENINGS if rng.random() < 0.4 else OPENINGS[:3])
    beats = [opening] + rng.choice(list(PLOTS.values()))
    if short:
        beats = beats[:3] + beats[-1:]
    parts = [sentence_case(expand(rng, b, slots)) for b in beats + [rng.choice(ENDINGS)]]
    parts = [p for p in parts if p]
    if not short and rng.random() < 0.3:
        half = len(parts) // 2
        return " ".join(parts[:half]) + "\n\n" + " ".join(parts[half:])
    return " ".join(parts)


if __name__ == "__main__":
    for seed in range(4):
        print(story(random.Random(seed)), "\n")
