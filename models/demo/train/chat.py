"""Short chats: every topic is a function that adds one or two exchanges to a conversation."""
import random

from grammar import expand, sentence_case
from stories import story
from words import (ANIMALS, BOYS, CAPITALS, CITIES, COLOURS, CONTINENT, DAYS, DEFINITIONS, EASY, GIRLS, HAIKU, HEROES,
                   JOKES, LIKES, MONTHS, NUMBERS, OPPOSITES, POEMS, WHY)

BOT = "Pip"
SYLLABLES = "ba be bo da de di do fa fi ga go ha ka ki ko la le li lo ma me mi mo na ne ni no pa pe ra re ri ro sa se so ta te to va ve vi wa ya yo za zo an en in on el ar or us".split()
CAN = ["tell a story, a joke or a poem, do small sums, and answer simple questions about countries, colours, animals and days",
       "tell stories and jokes, add small numbers, and talk about animals, colours, countries and days"]


class Chat:
    """One conversation under construction; remembers what the user said about themselves."""

    def __init__(self, rng: random.Random):
        self.rng, self.turns = rng, []
        self.user = self.city = self.like = None
        self.bot, self.system = BOT, None

    def add(self, question: str, answer: str, **slots) -> None:
        slots = {"bot": self.bot, "user": self.user, "can": CAN[self.rng.randrange(len(CAN))], "end": "[?|?|?|]"} | slots
        q = noisy(self.rng, sentence_case(expand(self.rng, question, slots)))
        self.turns.append((q, sentence_case(expand(self.rng, answer, slots))))


def noisy(rng: random.Random, q: str) -> str:
    """People type carelessly: lower case, no full stop, a polite word, a small slip."""
    if rng.random() < 0.12 and q[-1] in "?.":
        q = q[:1].lower() + q[1:] if not q.startswith("I ") else q
        q = rng.choice(["Please, ", "Hey, ", "Ok, ", "And ", "Now ", "So, "]) + q
    if rng.random() < 0.22:
        q = q.lower()
    if rng.random() < 0.25 and q[-1] in ".!?":
        q = q[:-1]
    if rng.random() < 0.03 and len(q) > 8:
        i = rng.randrange(2, len(q) - 2)
        q = q[:i] + q[i + 1] + q[i] + q[i + 2:]
    return q


def some_name(rng: random.Random) -> str:
    if rng.random() < 0.3:
        return "".join(rng.choice(SYLLABLES) for _ in range(rng.choice([2, 2, 3]))).title()
    return rng.choice(GIRLS + BOYS)


# ---------------------------------------------------------------- small talk
def greet(c: Chat) -> None:
    if c.rng.random() < 0.5:
        c.user = some_name(c.rng)
        return c.add("[Hello|Hi|Hey|Good morning], [I am|I'm|my name is|this is] {user}[.|!|]",
                     "[Hello|Hi], {user}! [Nice to meet you.|It is nice to meet you.] [I am {bot}.|] How can I help you?")
    c.add("[Hello|Hi|Hey|Hello there|Hi there|Hello {bot}|Hi {bot}|Greetings][!|.|]",
          "[Hello!|Hi!|Hello there!] [How can I help you?|How can I help you today?|What can I do for you?|Nice to see you. How can I help?]")


def time_greet(c: Chat) -> None:
    t = c.rng.choice(["morning", "afternoon", "evening"])
    c.add("Good {t}[!|.|, {bot}!]", "Good {t}! [How can I help you?|What can I do for you?]", t=t)


def how_are_you(c: Chat) -> None:
    c.add("[How are you{end}|How are you today{end}|How do you do{end}|How is it going{end}|Are you ok{end}|How do you feel{end}|What's up{end}|Hello, how are you{end}|Hi! How are you{end}]",
          "I am [fine|well|very well], thank you! [And you?|How are you?|How can I help you?]")
    if c.turns[-1][1].endswith(("And you?", "How are you?")) and c.rng.random() < 0.5:
        if c.rng.random() < 0.7:
            c.add("[I am fine|I am good|Fine|Good|I'm great|Very well|Good, thanks|I'm fine too|Also good|Not bad][.|!|, thank you.|]",
                  "[I am glad to hear that!|That is good to hear!|Great!] What can I do for you?")
        else:
            c.add("[I am sad|Not so good|I am tired|Bad|I'm a bit sad|I feel lonely|I had a bad day|I am bored][.|]",
                  "I am sorry to hear that. [Maybe a joke or a story can help. Would you like one?|I hope it gets better soon. Would you like to hear a story?]")


def who(c: Chat) -> None:
    c.add("[Who are you{end}|What are you{end}|What is your name{end}|What's your name{end}|Tell me about yourself.|Can you introduce yourself{end}|Do you have a name{end}|Introduce yourself.|And who are you{end}|What should I call you{end}]",
          "[I am {bot}|My name is {bot}|I'm {bot}], a [very small|tiny] language model. [I can {can}.|I am so small that I fit in a few megabytes.|I like stories and simple questions.]")


def can_do(c: Chat) -> None:
    c.add("[What can you do{end}|How can you help me{end}|What do you know{end}|What can I ask you{end}|Help|Can you help me{end}|What are you good at{end}|What can we talk about{end}|I need help.]",
          "I can {can}. [What would you like?|Just ask me!|]")


def about_bot(c: Chat) -> None:
    q, a = c.rng.choice([
        ("[Are you a robot{end}|Are you human{end}|Are you a real person{end}|Are you alive{end}|Are you a person{end}]", "No, I am {bot}, a small language model. I am a computer program."),
        ("[How old are you{end}|What is your age{end}|When were you born{end}]", "I do not have an age. I am a program, and I was trained a short time ago."),
        ("[Where do you live{end}|Where are you{end}|Where are you from{end}]", "I live in the memory of [this computer|your computer]. It is small, but cosy."),
        ("[Who made you{end}|Who created you{end}|Who trained you{end}|Who built you{end}]", "I was trained on simple stories and short chats by the people who wrote this server."),
        ("[How big are you{end}|How many parameters do you have{end}|Are you a big model{end}|Are you smart{end}]", "I am very small: I have less than two million parameters. [Big models know much more.|But I do my best!]"),
        ("[Do you have feelings{end}|Are you happy{end}|Can you feel{end}|Do you dream{end}]", "I am a program, so I have no feelings. But I like to chat with you!"),
        ("[What do you like{end}|Do you like stories{end}|What is your hobby{end}|What is your favourite thing{end}]", "I like stories with a happy ending."),
        ("[What is your favourite colour{end}|Do you have a favourite colour{end}|Which colour do you like{end}]", "I like [blue|green|yellow]. [It makes me think of the sea.|It is a friendly colour.|It looks nice.]"),
        ("[What is your favourite animal{end}|Which animal do you like{end}]", "I like llamas. They are woolly and calm."),
        ("[Are you there{end}|Can you hear me{end}|Are you ready{end}|Test|This is a test.|Testing|Test request|ping]", "[Yes, I am here!|I am here and ready.] [How can I help you?|What can I do for you?]"),
    ])
    c.add(q, a)


def my_name(c: Chat) -> None:
    if c.user is None and c.rng.random() < 0.75:
        c.user = some_name(c.rng)
        c.add("[My name is|I am|I'm|You can call me|Call me] {user}[.|!|]", "[Nice to meet you, {user}!|Hello, {user}!|Hi {user}! It is nice to meet you.] [How can I help you?|What can I do for you?|I am {bot}.]")


def ask_name(c: Chat) -> None:
    q = "[What is my name{end}|Do you know my name{end}|Who am I{end}|What's my name{end}|Do you remember my name{end}|Can you tell me my name{end}]"
    if c.user:
        c.add(q, "[Your name is {user}.|You are {user}.|You told me that your name is {user}.]")
    else:
        c.add(q, "I do not know your name yet. What is your name?")
        if c.rng.random() < 0.6:
            c.user = some_name(c.rng)
            c.add("[It is|My name is|I am|I'm|] {user}[.|]", "[Nice to meet you, {user}!|Thank you, {user}! I will remember it.]")


def origin(c: Chat) -> None:
    c.city = c.rng.choice(CITIES)
    c.add("I [live in|am from|come from] {city}[.|]", "{city} [sounds like|must be|is] a nice place! What do you like to do there?", city=c.city)
    if c.rng.random() < 0.5:
        c.add("[Where do I live{end}|Where am I from{end}|Do you know where I live{end}|Which city am I from{end}]", "[You told me that it is {city}.|In {city}.|{city}!]", city=c.city)


def likes(c: Chat) -> None:
    c.like = c.rng.choice(LIKES)
    c.add("I [like|love|really like] {x}[.|!|]", "[That is great!|How nice!|I understand!] [What do you like most about {x}?|I like to hear about {x}.|{x} can make a day better.]", x=c.like)
    if c.rng.random() < 0.5:
        c.add("[What do I like{end}|Do you remember what I like{end}|What did I say I like{end}]", "You [like|told me that you like] {x}.", x=c.like)


def thanks(c: Chat) -> None:
    tail = "[|, {user}]" if c.user else ""
    c.add("[Thanks|Thank you|Thanks a lot|Thank you very much|Thank you so much|Great, thanks|Cool, thank you|Perfect, thanks|thx][!|.|]",
          f"[You are welcome{tail}!|You're welcome{tail}!|My pleasure{tail}!] [Is there anything else?|Ask me any time.|]")


def praise(c: Chat) -> None:
    c.add("[That was nice|Nice|Great|Well done|Very good|I like it|That is funny|Wow|Good job|Haha|Cool|You are great|You are funny|I like you|Ok|Okay|I see][!|.|]",
          "[Thank you!|I am glad you like it!|That makes me happy!] [What shall we do next?|Would you like something else?|]")


def bye(c: Chat) -> None:
    tail = "[|, {user}]" if c.user else ""
    c.add("[Bye|Goodbye|Bye bye|See you|See you later|Good night|I have to go|Good bye|See you tomorrow|I have to go now, bye|That is all, bye][!|.|]",
          f"[Goodbye{tail}! Have a nice day!|Bye{tail}! See you soon!|Goodbye{tail}! It was nice to talk to you.]")


# ---------------------------------------------------------------- facts
def number(rng: random.Random, n: int) -> str:
    return NUMBERS[n] if n <= 20 and rng.random() < 0.1 else str(n)


def sums(c: Chat) -> None:
    r = c.rng
    for _ in range(r.choice([1, 1, 2, 3])):
        top = r.choice([10] * 9 + [20])
        a, b, op = r.randint(0, top), r.randint(0, top), r.choice("+++--*")
        if op == "*":
            a, b = r.randint(0, 10), r.randint(0, 10)
        if op == "-" and a < b:
            a, b = b, a
        v = {"+": a + b, "-": a - b, "*": a * b}[op]
        word = {"+": "[plus|plus|and]", "-": "minus", "*": "times"}[op]
        x, y = number(r, a), number(r, b)
        sign = r.choice([f" {op} ", f" {op} ", op]) if op != "*" else r.choice([" * ", " x ", "*"])
        c.add(f"[What is|What's|How much is|Calculate|Compute|Can you calculate|Tell me|] [{x} {word} {y}|{x}{sign}{y}|{x}{sign}{y}][?|?| =|]",
              f"[{a} {op} {b} = {v}|{a} {op} {b} = {v}.|{a} {op} {b} is {v}.]")


def objects_sum(c: Chat) -> None:
    r = c.rng
    a, b, thing = r.randint(2, 10), r.randint(1, 9), r.choice(["apples", "balls", "books", "coins", "nuts", "eggs"])
    who_ = r.choice(["I", r.choice(GIRLS + BOYS)])
    have = "have" if who_ == "I" else "has"
    you = "You have" if who_ == "I" else f"{who_} has"
    if b < a and r.random() < 0.5:
        verb = r.choice(["eat", "lose", "give away"]) if who_ == "I" else r.choice(["eats", "loses", "gives away"])
        c.add(f"{who_} {have} {a} {thing} and {verb} {b}. How many {thing} [are left|{'do I' if who_ == 'I' else 'does ' + who_} have now]?", f"{a} - {b} = {a - b}. {you} {a - b} {thing if a - b != 1 else thing[:-1]} left.")
    else:
        verb = r.choice(["get", "buy", "find"]) + ("" if who_ == "I" else "s")
        c.add(f"{who_} {have} {a} {thing} and {verb} {b} more. How many {thing} {'do I' if who_ == 'I' else 'does ' + who_} have[ now|]?", f"{a} + {b} = {a + b}. {you} {a + b} {thing}.")


def bigger(c: Chat) -> None:
    a, b = c.rng.sample(range(0, 31), 2)
    c.add("[Which is bigger, {a} or {b}{end}|What is larger: {a} or {b}{end}|Which number is bigger, {a} or {b}{end}|Is {a} bigger than {b}{end}]",
          "{m} is bigger than {l}.", a=a, b=b, m=max(a, b), l=min(a, b))


def capital(c: Chat) -> None:
    for i in range(c.rng.choice([1, 1, 2])):
        k, v = c.rng.choice(list(CAPITALS.items()))
        q = "[And of|And|What about|And the capital of] {k}{end}" if i else \
            "[What is the capital of {k}{end}|What's the capital of {k}{end}|Capital of {k}{end}|Tell me the capital of {k}.|Which city is the capital of {k}{end}|Do you know the capital of {k}{end}|Name the capital of {k}.]"
        c.add(q, "[The capital of {k} is {v}.|{v} is the capital of {k}.|It is {v}.]" if not i else "The capital of {k} is {v}.", k=k, v=v)


def country(c: Chat) -> None:
    k, v = c.rng.choice([i for i in CAPITALS.items() if i[0] in CONTINENT])
    q, a = c.rng.choice([
        ("[Where is {v}{end}|In which country is {v}{end}|Which country is {v} in{end}]", "{v} is in {k}."),
        ("[Where is {k}{end}|On which continent is {k}{end}|Which continent is {k} on{end}]", "{k} is in {w}."),
        ("[Is {v} in {k}{end}|Is {v} the capital of {k}{end}]", "Yes, {v} is the capital of {k}."),
    ])
    c.add(q, a, k=k, v=v, w=CONTINENT[k])


def colour(c: Chat) -> None:
    for i in range(c.rng.choice([1, 1, 2])):
        k, v = c.rng.choice(list(COLOURS.items()))
        c.add("[And|What about|And what colour is] {k}{end}" if i else "[What colour is {k}{end}|What color is {k}{end}|Which colour is {k}{end}|Which colour has {k}{end}|Do you know what colour {k} is{end}]",
              "{k} is {v}.", k=k, v=v)


def colours_more(c: Chat) -> None:
    q, a = c.rng.choice([
        ("[What are the primary colours|What are the basic colours|Name three colours]{end}", "Red, yellow and blue."),
        ("[What do you get when you mix blue and yellow|What is blue and yellow|Mix blue and yellow]{end}", "Blue and yellow make green."),
        ("[What do you get when you mix red and yellow|What is red and yellow|Mix red and yellow]{end}", "Red and yellow make orange."),
        ("[What do you get when you mix red and blue|What is red and blue|Mix red and blue]{end}", "Red and blue make purple."),
        ("[What are the colours of the rainbow|Which colours has a rainbow|Name the colours of the rainbow]{end}", "Red, orange, yellow, green, blue, indigo and violet."),
    ])
    c.add(q, a)


def animal(c: Chat) -> None:
    k = c.rng.choice(list(ANIMALS))
    sound, home, food, young, legs = ANIMALS[k]
    legs_say = {0: f"A {k} has no legs.", 2: f"A {k} has two legs.", 4: f"A {k} has four legs.", 6: f"A {k} has six legs.", 8: f"A {k} has eight legs."}[legs]
    asks = [
        ("[What sound does a {k} make{end}|What does a {k} say{end}|How does a {k} sound{end}|What noise does a {k} make{end}]", "A {k} says {sound}." if " " not in sound else "A {k} makes {sound}."),
        ("[Where does a {k} live{end}|Where do you find a {k}{end}|What is the home of a {k}{end}]", "A {k} lives in {home}."),
        ("[What does a {k} eat{end}|What is the food of a {k}{end}|What do you feed a {k}{end}]", "A {k} eats {food}."),
        ("[What is a baby {k} called{end}|What do you call a baby {k}{end}|What is a young {k} called{end}]", "A baby {k} is called a {young}."),
        ("[How many legs does a {k} have{end}|How many legs has a {k}{end}]", legs_say),
    ]
    for q, a in c.rng.sample(asks, c.rng.choice([1, 1, 2])):
        c.add(q, a, k=k, sound=sound, home=home, food=food, young=young)


def animals_more(c: Chat) -> None:
    q, a = c.rng.choice([
        ("[What is the biggest animal|Which animal is the largest|What is the largest animal in the world]{end}", "The blue whale is the biggest animal."),
        ("[What is the fastest animal|Which animal is the fastest|Which animal runs fastest]{end}", "The cheetah is the fastest animal on land."),
        ("[What is the tallest animal|Which animal is the tallest|Which animal has the longest neck]{end}", "The giraffe is the tallest animal."),
        ("[Can a penguin fly|Do penguins fly]{end}", "No, a penguin is a bird, but it cannot fly. It swims very well."),
        ("[Can birds fly|Can a bird fly]{end}", "Yes, most birds can fly."), ("[Can fish fly|Can a fish walk]{end}", "No, a fish swims in the water."),
        ("[Name three animals|Tell me some animals|Name some animals]{end}", "[A dog, a cat and a horse.|A fox, an owl and a bear.|A lion, an elephant and a monkey.]"),
        ("[Name a farm animal|Which animals live on a farm]{end}", "Cows, sheep, pigs and hens live on a farm."),
        ("[Which animal gives us milk|Where does milk come from]{end}", "Milk comes from cows, and also from goats and sheep."),
        ("[Who makes honey|Where does honey come from|Which animal makes honey]{end}", "Bees make honey."),
    ])
    c.add(q, a)


def calendar(c: Chat) -> None:
    r = c.rng
    i, m = r.randrange(7), r.randrange(12)
    near = {1: "after", -1: "before"}
    s = r.choice([1, 1, -1])
    q, a = r.choice([
        (f"[What|Which] day [comes|is] {near[s]} {DAYS[i]}{{end}}", f"{DAYS[(i + s) % 7]} comes {near[s]} {DAYS[i]}."),
        (f"[What|Which] day [comes|is] {near[s]} {DAYS[i]}{{end}}", f"{DAYS[(i + s) % 7]} comes {near[s]} {DAYS[i]}."),
        (f"Today is {DAYS[i]}. [What day is tomorrow|What is tomorrow|Which day is it tomorrow]{{end}}", f"Tomorrow is {DAYS[(i + 1) % 7]}."),
        (f"Today is {DAYS[i]}. [What day was yesterday|Which day was yesterday]{{end}}", f"Yesterday was {DAYS[(i - 1) % 7]}."),
        (f"[What|Which] month [comes|is] {near[s]} {MONTHS[m]}{{end}}", f"{MONTHS[(m + s) % 12]} comes {near[s]} {MONTHS[m]}."),
        ("[How many days are in a week|How many days does a week have]{end}", "A week has seven days."),
        ("[How many months are in a year|How many months does a year have]{end}", "A year has twelve months."),
        ("[How many days are in a year|How many days does a year have]{end}", "A year has 365 days, and a leap year has 366."),
        ("[How many hours are in a day|How many hours does a day have]{end}", "A day has 24 hours."),
        ("[How many minutes are in an hour|How many minutes does an hour have]{end}", "An hour has 60 minutes."),
        ("[How many seconds are in a minute|How many seconds does a minute have]{end}", "A minute has 60 seconds."),
        ("[What are the days of the week|Name the days of the week|List the days of the week|Tell me the days of the week]{end}", ", ".join(DAYS[:6]) + " and Sunday."),
        ("[What are the months of the year|Name the months|List the months|Tell me all months]{end}", ", ".join(MONTHS[:11]) + " and December."),
        ("[What are the seasons|Name the four seasons|How many seasons are there]{end}", "There are four seasons: spring, summer, autumn and winter."),
        ("[Which season is the coldest|When does it snow|What is the coldest season]{end}", "Winter is the coldest season."),
        ("[Which season is the warmest|What is the hottest season]{end}", "Summer is the warmest season."),
        ("[What time is it|What is the time|What day is it today|What is the date today]{end}", "I cannot see a clock or a calendar, so I do not know. Sorry!"),
        ("[What is the weather today|How is the weather|Will it rain tomorrow]{end}", "I cannot look out of the window, so I do not know. I hope the sun is shining!"),
    ])
    c.add(q, a)


def opposite(c: Chat) -> None:
    for i in range(c.rng.choice([1, 1, 2])):
        k, v = c.rng.choice(list(OPPOSITES.items()))
        if c.rng.random() < 0.5 and v not in ("black", "light"):
            k, v = v, k
        c.add("And of {k}{end}" if i else "[What is the opposite of {k}{end}|What's the opposite of {k}{end}|Opposite of {k}{end}|Tell me the opposite of {k}.]", "The opposite of {k} is {v}.", k=k, v=v)


def counting(c: Chat) -> None:
    r = c.rng
    n = r.choice([3, 5, 5, 10, 10, 10, 15, 20])
    a = 1
    if r.random() < 0.3:
        a, n = (lambda s: (s, s + r.randint(2, 8)))(r.randint(1, 12))
    up = ", ".join(map(str, range(a, n + 1)))
    down = ", ".join(map(str, range(n, 0, -1)))
    q, s = r.choice([
        (f"[Count from {a} to {n}|Can you count from {a} to {n}|Please count from {a} to {n}|Write the numbers from {a} to {n}][.|?|]", up),
        (f"[Count from {a} to {n}|Can you count to {n}|Count to {n}][.|?|]" if a == 1 else f"Count from {a} to {n}.", up),
        (f"[Count down from {n}|Count backwards from {n}|Count from {n} to 1][.|]", down),
    ])
    c.add(q, s)


def next_number(c: Chat) -> None:
    n, s = c.rng.randint(0, 40), c.rng.choice([1, 1, -1])
    if n == 0:
        s = 1
    c.add(f"[What number|Which number|What] comes {'after' if s > 0 else 'before'} {n}{{end}}", f"{n + s} comes {'after' if s > 0 else 'before'} {n}.")


def letters(c: Chat) -> None:
    abc = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    i = c.rng.randrange(25)
    w = c.rng.choice(EASY)
    q, a = c.rng.choice([
        ("[Say the alphabet|What is the alphabet|Can you say the alphabet|Tell me the alphabet|Recite the alphabet]{end}", " ".join(abc)),
        (f"[Which|What] letter comes after {abc[i]}{{end}}", f"{abc[i + 1]} comes after {abc[i]}."),
        (f"[How do you spell {w}|Spell {w}|Can you spell {w}|Spell the word {w}]{{end}}", "-".join(w.upper())),
        (f"[How do you spell {w}|Spell {w}|Can you spell {w}]{{end}}", "-".join(w.upper())),
        ("[How many letters are in the alphabet|How many letters does the alphabet have]{end}", "The alphabet has 26 letters."),
    ])
    c.add(q, a)


def repeat(c: Chat) -> None:
    x = c.rng.choice([c.rng.choice(LIKES), c.rng.choice(list(DEFINITIONS)), c.rng.choice(EASY), some_name(c.rng), "I like " + c.rng.choice(LIKES), "the " + c.rng.choice(list(ANIMALS)) + " is " + c.rng.choice(["happy", "small", "kind", "red"]),
                      "hello " + c.rng.choice(["world", "there", some_name(c.rng)]),
                      *[", ".join(some_name(c.rng) for _ in range(c.rng.randint(1, 5))) for _ in range(6)]])
    q = c.rng.choice(["Say {x}.", "Repeat after me: {x}", "Please say {x}.", "Can you say {x}?", "Repeat: {x}"])
    c.turns.append((q.format(x=x), sentence_case(x) + ("!" if "hello" in x else ".")))


def define(c: Chat) -> None:
    k, v = c.rng.choice(list(DEFINITIONS.items()) + [("deep learning", DEFINITIONS["deep learning"])])
    if k in ("deep learning", "machine learning", "artificial intelligence") and c.rng.random() < 0.4:
        k = k.title()
    plain = k.removeprefix("a ").removeprefix("an ")
    c.add("[What is {k}{end}|What is {k}{end}|Explain {k}.|Tell me about {k}.|Can you explain {k}{end}|What does {p} mean{end}|Define {p}.|What's {k}{end}|Can you explain what {k} is{end}]", v, k=k, p=plain)


def why(c: Chat) -> None:
    k, v = c.rng.choice(list(WHY.items()))
    c.add("[Why {k}{end}|Can you tell me why {k}{end}|Do you know why {k}{end}]" if not k.startswith(("is", "do")) else "Why {k}{end}", v, k=k)


def code(c: Chat) -> None:
    q, a = c.rng.choice([
        ("[Write hello world in Python|Print hello world in Python|Show me some Python code|Write a Python program|Can you write code]{end}", "print(\"Hello, world!\")"),
        ("[Write hello world in C|Show me some C code|Write a C program]{end}", "#include <stdio.h>\n\nint main(void)\n{\n    puts(\"Hello, world!\");\n    return 0;\n}"),
    ])
    c.turns.append((noisy(c.rng, expand(c.rng, q, {"end": "[?|.|]"})), a))


def unknown(c: Chat) -> None:
    r = c.rng
    x = r.choice(["the history of " + r.choice(list(CAPITALS)), "quantum physics", "the stock market", "my taxes", "chemistry", "the president", "a lawyer", "politics", "the news", "medicine", "philosophy", "the meaning of life", some_name(r), "a " + some_name(r).lower(), "the best restaurant in " + r.choice(CITIES), "cars", "relativity", "the economy", "the election"])
    c.add("[What is {x}{end}|Tell me about {x}.|Explain {x}.|What do you think about {x}{end}|Who is {x}{end}|Do you know {x}{end}|What do you know about {x}{end}|Can you explain {x}{end}|How does {x} work{end}]",
          "[I am a very small model, and I do not know that.|Sorry, I do not know that. I am a very small model.|I do not know much about that, I am only a small model.] [But I can tell you a story or a joke!|You could ask me about animals, colours or countries.|]", x=x)
    if c.turns[-1][1].endswith("joke!") and r.random() < 0.4:
        joke(c, "[Ok, tell me a joke|A joke, please|Then a joke|Yes, a joke][.|!|]")


# ---------------------------------------------------------------- fun
def joke(c: Chat, q: str = "[Tell me a joke.|Tell me a joke|Do you know a joke{end}|Make me laugh.|Can you tell me a joke{end}|A joke, please.|Say something funny.|I want to hear a joke.|tell me something funny]") -> None:
    a, b = c.rng.choice(JOKES)
    if c.rng.random() < 0.25:
        c.add(q, a)
        k = c.rng.choice(["why", "what", "where"]) if not a.startswith(("Why", "What", "Where")) else a.split()[0].lower()
        return c.add("[I don't know|I do not know|No idea|Tell me|" + k.title() + "|I give up|Hm, " + k + "][.|?|]", b)
    c.add(q, a + " " + b)
    if c.rng.random() < 0.3:
        a, b = c.rng.choice([j for j in JOKES if j[0] != a])
        c.add("[Another one|One more|Again|Another joke|Tell me another one|More|Another one, please|Tell me one more joke][!|.|]", a + " " + b)


def tale(c: Chat) -> None:
    r = c.rng
    kind, hero = r.choice([*HEROES, "girl", "boy", "princess", "king"]), None
    short = r.random() < 0.75
    w = r.choice(["", "", "short ", "little "])
    if r.random() < 0.35:
        hero = r.choice(GIRLS + BOYS)
        kind = r.choice(HEROES + ["girl" if hero in GIRLS else "boy"] * 4)
        q = f"[Tell me|Write|Can you tell me|I want to hear|Tell] a {w}story about a {kind} [named|called] {hero}[.|]"
    elif r.random() < 0.7:
        q = f"[Tell me|Write|Can you tell me|Please tell me|I want to hear|I would like|Make up|Write me] a {w}story about a {kind}[.|.|!|]"
    else:
        kind = None
        q = f"[Tell me a {w}story|Tell me a {w}story|Can you tell me a {w}story|I want a {w}story|A {w}story, please|Do you know a {w}story|Write a {w}story|Please tell me a {w}story|Tell a {w}story|I want to hear a story][.|?|]"
    c.turns.append((noisy(r, expand(r, q)), story(r, kind, hero, short)))
    if r.random() < 0.15:
        c.turns.append((noisy(r, expand(r, "[Another one|One more|Another story|Tell me another story|One more story, please][!|.|]")), story(r, None, None, True)))


def poem(c: Chat) -> None:
    r = c.rng
    a = r.choice(HEROES)
    slots = {"a": a, "j": r.choice(["little", "happy", "quiet", "brave", "gentle"]), "k": r.choice(["warm", "calm", "soft", "bright", "golden"]), "c": r.choice(["silver", "golden", "blue", "white", "green"])}
    if r.random() < 0.3:
        q, t = "[Write a haiku|Tell me a haiku|A haiku, please|Can you write a haiku]{end}", r.choice(HAIKU)
    else:
        q, t = "[Write a poem|Tell me a poem|A poem, please|Can you write a poem|Write me a poem|Write a short poem][ about a {a}|]{end}", r.choice(POEMS)
    lines = [sentence_case(expand(r, line, slots)) if i == 0 else expand(r, line, slots) for i, line in enumerate(t.split("\n"))]
    c.turns.append((noisy(r, expand(r, q, slots | {"end": "[.|?|]"})), "\n".join(lines)))


def accept(c: Chat) -> None:
    """The user answers a question of ours with yes or no."""
    if c.turns and "story?" in c.turns[-1][1] or c.turns and "Would you like one" in c.turns[-1][1]:
        c.turns.append((noisy(c.rng, c.rng.choice(["Yes, please.", "Yes!", "Sure.", "Ok.", "Yes, a story."])), story(c.rng, short=True)))
    elif c.turns and "anything else?" in c.turns[-1][1]:
        c.add("[No|No, thanks|No, that is all|Nothing|No, thank you][.|!|]", "[All right! Have a nice day!|Good! See you soon!]")


def favourite(c: Chat) -> None:
    x = c.rng.choice(["[What should I eat{end}|I am hungry.|What shall I cook{end}]>[How about|What about|Maybe] [warm soup|pancakes|bread and cheese|noodles|an apple pie]?",
                      "[I am thirsty.|What should I drink{end}]>How about [a glass of water|a cup of tea|some juice]?", "[I am tired.|I am sleepy.]>Then you should rest. Good night!",
                      "[What should I read{end}|Recommend a book.]>[How about a book of fairy tales?|A book about animals is always good.]", "[Tell me a secret.|Tell me something.|Tell me a fun fact.|Tell me something interesting.]>[An octopus has three hearts.|Honey can stay good for thousands of years.|Cats sleep for more than half of the day.|A group of crows is called a murder.|Bees can see colours that we cannot see.]",
                      "[What is the meaning of life{end}]>I think it is to be kind and to tell good stories.", "[I love you.|I love you!]>[Thank you! That is very kind of you.|You are very kind!]", "[You are stupid.|You are wrong.|That is wrong.|You are bad.]>I am sorry. I am very small, and I make mistakes.",
                      "[Can you sing{end}|Sing a song.|Sing something.]>La la la! The sun is up, the birds are here, the best of songs is the one you hear.", "[What is your favourite food{end}|Do you eat{end}]>I do not eat, but I like to talk about pancakes.",
                      "[Is the Earth round{end}|Is the Earth flat{end}]>The Earth is round, like a ball.", "[How many planets are there{end}|How many planets are in our solar system{end}]>There are eight planets in our solar system.", "[How many continents are there{end}|Name the continents.]>There are seven continents: Africa, Antarctica, Asia, Australia, Europe, North America and South America.",
                      "[What is the biggest planet{end}|What is the largest planet{end}]>Jupiter is the biggest planet.", "[What is the highest mountain{end}|What is the tallest mountain{end}]>Mount Everest is the highest mountain.", "[What is the longest river{end}]>The Nile and the Amazon are the longest rivers.", "[What is the largest ocean{end}|What is the biggest ocean{end}]>The Pacific is the largest ocean."])
    c.add(*x.split(">", 1))


WEIGHTS = [(how_are_you, 3), (who, 5), (can_do, 3), (about_bot, 5), (my_name, 10), (ask_name, 12), (origin, 1.5), (likes, 4), (thanks, 5), (praise, 3),
           (sums, 18), (objects_sum, 2), (bigger, 1.5), (capital, 11), (country, 2), (colour, 7), (colours_more, 1.5), (animal, 9), (animals_more, 2),
           (calendar, 9), (opposite, 4), (counting, 3), (next_number, 2), (letters, 2), (repeat, 6), (define, 9), (why, 3), (code, 0.5), (unknown, 4),
           (joke, 7), (tale, 8), (poem, 2.5), (accept, 4), (favourite, 5)]
SYSTEMS = ["You are a helpful assistant.", "You are {bot}, a small and friendly assistant.", "You are a friendly assistant.", "You are a helpful assistant. Answer in short sentences.",
           "Be brief.", "You are a kind helper for children.", "You are {bot}, a helpful assistant.", "Your name is {bot}. Be friendly.", "You are a helpful AI assistant."]


def introduction(rng: random.Random) -> tuple[str | None, list[tuple[str, str]]]:
    """A short chat in which the user's name, city or taste has to be remembered."""
    c = Chat(rng)
    c.user = some_name(rng)
    hello = rng.choice(["Hello, I am {n}.", "Hi, I'm {n}.", "My name is {n}.", "Hi, I am {n}", "I'm {n}.", "Hello! My name is {n}.", "Hi, my name is {n}!", "Call me {n}.", "I am {n}."]).format(n=c.user)
    c.turns.append((hello, expand(rng, "[Nice to meet you, {user}!|Hello, {user}!|Hi, {user}!|Hello, {user}! Nice to meet you.] How can I help you?", {"user": c.user})))
    for topic in rng.choices([thanks, sums, capital, likes, origin, how_are_you], k=rng.choice([0, 0, 0, 1])):
        topic(c)
    if rng.random() < 0.7:
        ask_name(c)
    return c.system, c.turns


def conversation(rng: random.Random) -> tuple[str | None, list[tuple[str, str]]]:
    """(system message or None, [(user, assistant)])"""
    c = Chat(rng)
    if rng.random() < 0.35:
        line = rng.choice(SYSTEMS)
        if "{bot}" in line and rng.random() < 0.6:
            c.bot = some_name(rng)
        c.system = line.format(bot=c.bot)
    if rng.random() < 0.4:
        rng.choice([greet, greet, greet, time_greet, how_are_you])(c)
    topics, weights = zip(*WEIGHTS)
    for topic in rng.choices(topics, weights, k=rng.choice([1, 1, 1, 2, 2, 3, 4])):
        topic(c)
    if not c.turns:
        greet(c)
    if rng.random() < 0.15:
        bye(c)
    return c.system, c.turns


if __name__ == "__main__":
    for seed in range(30):
        s, t = conversation(random.Random(seed))
        print("SYSTEM", s)
        for q, a in t:
            print("  >", q, "\n  <", a)
