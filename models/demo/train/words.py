"""The small world that stories and chats talk about."""

GIRLS = """Anna Lily Mia Emma Rosa Nora Ella Lucy Clara Ida Maya Zoe Ruby Alice Sofia Hana Leila Ines Olga Priya Amina
Freya Greta Julia Kate Laura Maria Nina Paula Sara Tina Vera Wendy Yuki Chloe Daisy Eva Grace Helen Iris Jane Lena
Marta Olivia Rita Sue Thea Una Violet Zara""".split()
BOYS = """Tom Ben Max Leo Sam Finn Oscar Paul Omar Ivan Hugo Noah Liam Jack Theo Emil Karl Nils Raj Kofi Marco Pedro
Adam Bob Carl David Erik Felix George Henry Ian Jonas Kenji Lucas Martin Nick Otto Peter Quinn Robert Simon Tim Umar
Victor Will Xavier Yusuf Zack Daniel Olivier""".split()

# animal: (sound, home, food, young, legs)
ANIMALS = {
    "dog": ("woof", "a house", "meat and bones", "puppy", 4), "cat": ("meow", "a house", "fish and mice", "kitten", 4),
    "cow": ("moo", "a farm", "grass", "calf", 4), "horse": ("neigh", "a stable", "grass and hay", "foal", 4),
    "sheep": ("baa", "a farm", "grass", "lamb", 4), "pig": ("oink", "a farm", "almost anything", "piglet", 4),
    "duck": ("quack", "a pond", "plants and small insects", "duckling", 2),
    "frog": ("ribbit", "a pond", "flies", "tadpole", 4), "lion": ("roar", "the savanna", "meat", "cub", 4),
    "bear": ("growl", "the forest", "berries, fish and honey", "cub", 4),
    "wolf": ("howl", "the forest", "meat", "pup", 4), "owl": ("hoot", "a tree", "mice", "owlet", 2),
    "bird": ("tweet", "a nest", "seeds and worms", "chick", 2), "bee": ("buzz", "a hive", "nectar", "larva", 6),
    "mouse": ("squeak", "a small hole", "seeds and cheese", "pup", 4),
    "fox": ("a sharp bark", "a den", "mice and berries", "cub", 4),
    "rabbit": ("almost nothing", "a burrow", "carrots and grass", "kit", 4),
    "elephant": ("a trumpet call", "the savanna", "leaves and grass", "calf", 4),
    "monkey": ("chatter", "the jungle", "fruit", "infant", 4), "snake": ("hiss", "the grass", "mice", "snakelet", 0),
    "spider": ("nothing at all", "a web", "flies", "spiderling", 8), "ant": ("nothing at all", "an anthill", "seeds and crumbs", "larva", 6),
    "fish": ("nothing at all", "the water", "small plants", "fry", 0), "hen": ("cluck", "a farm", "grain", "chick", 2),
    "goat": ("bleat", "the mountains", "grass and leaves", "kid", 4), "penguin": ("a honk", "the cold south", "fish", "chick", 2),
    "whale": ("a long song", "the ocean", "tiny sea animals", "calf", 0), "turtle": ("nothing at all", "the sea or a pond", "plants", "hatchling", 4),
    "butterfly": ("nothing at all", "a meadow", "nectar", "caterpillar", 6), "llama": ("a soft hum", "the Andes mountains", "grass and hay", "cria", 4),
}
HEROES = "fox rabbit bear mouse owl cat dog frog duck turtle hedgehog squirrel lion elephant bird pig robot dragon llama penguin bee monkey wolf sheep horse".split()
PLACES = ["forest", "park", "river", "garden", "beach", "hill", "meadow", "lake", "village", "farm", "old tower", "market"]
TOYS = ["red ball", "blue kite", "toy boat", "toy train", "small drum", "yellow hat", "paper plane", "wooden horse", "green scarf", "silver bell", "picture book", "music box"]
FOODS = ["apple pie", "warm bread", "vegetable soup", "pancakes", "honey cake", "carrot cake", "cookies", "strawberry jam", "cheese", "noodles"]
FRUITS = ["apples", "pears", "berries", "cherries", "plums", "nuts", "oranges", "carrots"]
ADJ = "little small brave kind clever shy curious happy friendly young quiet cheerful gentle".split()

CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid", "Portugal": "Lisbon", "England": "London",
    "Ireland": "Dublin", "Scotland": "Edinburgh", "Norway": "Oslo", "Sweden": "Stockholm", "Finland": "Helsinki",
    "Denmark": "Copenhagen", "Poland": "Warsaw", "Austria": "Vienna", "Switzerland": "Bern", "Greece": "Athens",
    "Turkey": "Ankara", "Russia": "Moscow", "Ukraine": "Kyiv", "Hungary": "Budapest", "Romania": "Bucharest",
    "Belgium": "Brussels", "the Netherlands": "Amsterdam", "Iceland": "Reykjavik", "Japan": "Tokyo", "China": "Beijing",
    "India": "New Delhi", "South Korea": "Seoul", "Thailand": "Bangkok", "Vietnam": "Hanoi", "Indonesia": "Jakarta",
    "Egypt": "Cairo", "Kenya": "Nairobi", "Nigeria": "Abuja", "Ghana": "Accra", "Morocco": "Rabat", "Canada": "Ottawa",
    "the United States": "Washington", "Mexico": "Mexico City", "Cuba": "Havana", "Brazil": "Brasilia", "Argentina": "Buenos Aires",
    "Chile": "Santiago", "Peru": "Lima", "Colombia": "Bogota", "Australia": "Canberra", "New Zealand": "Wellington",
    "Iran": "Tehran", "the Czech Republic": "Prague",
}
CONTINENT = {c: "Europe" for c in list(CAPITALS)[:24]} | {c: "Asia" for c in "Japan China India Thailand Vietnam Indonesia Iran".split()} | \
    {c: "Africa" for c in "Egypt Kenya Nigeria Ghana Morocco".split()} | {c: "South America" for c in "Brazil Argentina Chile Peru Colombia".split()} | \
    {c: "North America" for c in ["Canada", "the United States", "Mexico", "Cuba"]} | {"South Korea": "Asia", "the Czech Republic": "Europe"}
COLOURS = {
    "the sky": "blue", "grass": "green", "snow": "white", "the sun": "yellow", "a banana": "yellow", "a tomato": "red", "blood": "red",
    "coal": "black", "an orange": "orange", "a carrot": "orange", "milk": "white", "chocolate": "brown", "a lemon": "yellow",
    "a strawberry": "red", "the sea": "blue", "a leaf": "green", "a frog": "green", "a fire truck": "red", "a cucumber": "green",
    "an elephant": "grey", "a flamingo": "pink", "a pumpkin": "orange", "the night sky": "black", "gold": "yellow", "a plum": "purple", "a cherry": "red",
}
OPPOSITES = """hot cold,big small,up down,happy sad,fast slow,day night,black white,open closed,young old,light dark,good bad,
early late,full empty,hard soft,high low,left right,long short,loud quiet,new old,near far,rich poor,strong weak,tall short,wet dry,
yes no,in out,love hate,clean dirty,heavy light,summer winter,begin end,buy sell,push pull,easy difficult,win lose"""
OPPOSITES = dict(tuple(p.split()) for p in OPPOSITES.replace("\n", "").split(","))
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty".split()
LIKES = ["cats", "dogs", "music", "football", "chess", "books", "pizza", "tea", "coffee", "chocolate", "painting", "swimming", "trains",
         "flowers", "the sea", "mountains", "cooking", "dancing", "robots", "stars", "birds", "games", "running", "cake", "computers"]
CITIES = sorted(set(CAPITALS.values()) | {"Boston", "Chicago", "Munich", "Milan", "Lyon", "Porto", "Mumbai", "Osaka", "Toronto", "Sydney"})

DEFINITIONS = {
    "deep learning": "Deep learning is a kind of machine learning. It uses neural networks with many layers, which learn patterns from a lot of examples.",
    "machine learning": "Machine learning is a way to teach computers with examples instead of fixed rules.",
    "a neural network": "A neural network is a program made of many small units in layers. It learns by changing the numbers between them.",
    "a language model": "A language model is a program that has read a lot of text and predicts the next word, again and again.",
    "artificial intelligence": "Artificial intelligence means programs that do things for which people need to think, such as seeing, speaking and planning.",
    "a token": "A token is a small piece of text, often a word or a part of a word. A language model reads and writes tokens.",
    "a computer": "A computer is a machine that follows instructions very quickly.",
    "a program": "A program is a list of instructions for a computer.",
    "the sun": "The sun is a star. It gives us light and warmth.", "the moon": "The moon is a ball of rock that goes around the Earth.",
    "a star": "A star is a huge ball of hot gas that shines, like our sun.", "a planet": "A planet is a big round body that goes around a star. We live on the planet Earth.",
    "water": "Water is a clear liquid. All living things need it.", "ice": "Ice is frozen water.", "rain": "Rain is water that falls from the clouds in small drops.",
    "snow": "Snow is frozen water that falls from the clouds in white flakes.", "wind": "Wind is air that moves.",
    "a rainbow": "A rainbow is an arc of colours in the sky. You can see it when the sun shines through the rain.",
    "a volcano": "A volcano is a mountain from which hot melted rock can come out.", "an island": "An island is land with water all around it.",
    "a river": "A river is a long stream of water that flows to the sea or a lake.", "a desert": "A desert is a very dry place with little rain.",
    "a forest": "A forest is a big place with many trees.", "a tree": "A tree is a tall plant with a wooden trunk, branches and leaves.",
    "a flower": "A flower is the colourful part of a plant. Bees like to visit it.", "bread": "Bread is a food made from flour and water and baked in an oven.",
    "cheese": "Cheese is a food made from milk.", "honey": "Honey is a sweet food that bees make.", "music": "Music is sound made for listening, with rhythm and melody.",
    "a friend": "A friend is a person you like and trust.", "love": "Love is a deep and warm feeling for someone.", "a book": "A book is a set of pages with words or pictures to read.",
    "a library": "A library is a place where you can borrow books.", "a school": "A school is a place where children learn.",
    "a doctor": "A doctor is a person who helps sick people.", "a bicycle": "A bicycle is a vehicle with two wheels that you move with your feet.",
    "a train": "A train is a row of wagons that runs on rails.", "a clock": "A clock is a machine that shows the time.", "a mountain": "A mountain is a very high hill of rock.",
    "an ocean": "An ocean is a very large sea of salt water.", "fire": "Fire is hot and bright. It burns wood and gives light and warmth.",
    "Python": "Python is a programming language that is easy to read.", "C": "C is a small and fast programming language. Many operating systems are written in it.",
    "the internet": "The internet is a network that connects computers all over the world.", "a llama": "A llama is a woolly animal from South America with a long neck.",
}
WHY = {
    "is the sky blue": "Sunlight has all colours in it. The air scatters the blue light the most, so the sky looks blue.",
    "does it rain": "Water rises from the sea as vapour, becomes clouds, and falls back as rain.",
    "do we sleep": "Sleep gives the body and the brain time to rest and to grow.",
    "is the sea salty": "Rivers carry a little salt from the rocks to the sea, and it stays there when the water goes up as vapour.",
    "is grass green": "Grass has a green stuff called chlorophyll, which catches sunlight.",
    "do birds fly south": "Many birds fly south in winter because it is warmer there and they find more food.",
    "is fire hot": "Burning sets free a lot of energy, and we feel it as heat.", "do cats purr": "Cats often purr when they feel safe and happy.",
    "do we have seasons": "The Earth is tilted, so in one half of the year we get more sunlight than in the other.",
    "do leaves fall": "Trees drop their leaves in autumn to save water and strength for the winter.",
}
JOKES = [
    ("Why did the chicken cross the road?", "To get to the other side!"), ("What do you call a bear with no teeth?", "A gummy bear!"),
    ("Why is six afraid of seven?", "Because seven eight nine!"), ("What do you call a sleeping bull?", "A bulldozer!"),
    ("Why did the bicycle fall over?", "Because it was two tired!"), ("What has four wheels and flies?", "A garbage truck!"),
    ("What do clouds wear under their coats?", "Thunderwear!"), ("Why was the computer cold?", "It left its Windows open!"),
    ("What do you call a fish without eyes?", "A fsh!"), ("Why did the cookie go to the doctor?", "Because it felt crumby!"),
    ("What is a cat's favourite colour?", "Purr-ple!"), ("Why do bees have sticky hair?", "Because they use honeycombs!"),
    ("What did one wall say to the other wall?", "I will meet you at the corner!"), ("Where do sheep go on holiday?", "To the Baa-hamas!"),
]
POEMS = [
    "The {a} sings a {j} song,\nthe night is {k}, the road is long.\nA {c} star shines on the hill,\nand all the little birds are still.",
    "A {j} {a} sat by the sea\nand drank a {k} cup of tea.\nThe {c} waves came, the waves went home,\nand wrote their letters in the foam.",
    "{c} is the morning, {k} is the day,\na {j} {a} comes out to play.\nIt runs and jumps beneath the tree,\nas {j} as a {a} can be.",
    "Small is the {a}, and wide is the sky,\n{c} are the clouds that go drifting by.\nThe world is {k}, the wind is free,\nand the {j} {a} waves at me.",
]
HAIKU = ["{c} leaves in the wind,\na {j} {a} looks at the moon,\nthe river says hush.", "{c} morning light falls,\none {j} {a} by the pond,\nrings upon water.",
         "Soft rain on the roof,\nthe {j} {a} dreams of summer,\n{c} flowers wake up."]
EASY = "spell-cat spell-dog spell-sun spell-hello spell-fish spell-tree spell-house spell-bird spell-apple spell-water spell-friend spell-star spell-moon spell-happy spell-bread spell-llama".replace("spell-", "").split()
