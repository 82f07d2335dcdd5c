/* corpus_grammar.c: the words and sentences of the built-in corpus. corpus.h says how it is written, corpus.c what it
 * means.
 *
 * The tests check: every rule is prefix-free (so words that get an "s" do not begin with another word of their class,
 * "can" beside "candle"); everything recalled was introduced on every path; words after "a" begin with a consonant;
 * no story has STORY_MAX bytes; more than 1,000 words; between 1 and 3 bits per byte.
 *
 * A model of 200,000 parameters should learn it in a minute, and one of a million should be busy for ten:
 *
 *   - Words are used as in any language, a few of them often and many seldom: 9 of 10 words of a class are its common
 *     ones, 9 of 100 its less common ones, 1 of 100 its rare ones. Common words are short, which gives many bits per
 *     byte. Sentences likewise: 42 kinds are common, 16 are rare.
 *   - English alone has 3/4 of a bit per byte in sentences as regular as these. Invented names, cries and numbers bring
 *     it above one: their form is learnt quickly, but they cannot be guessed.
 *   - A story returns to its people and things: a name (4.6 bits to guess, none to remember), a thing, and the
 *     pronouns that belong to them, over one to five sentences.
 */
#include "data/corpus.h"

/* A class of words: common, less common, rare. */
#define CLASS(name, common, less, rare) \
    {name, "90*{" name "1}|9*{" name "2}|{" name "3}"}, {name "1", common}, {name "2", less}, { name "3", rare }

const struct rule_source corpus_source[] = {
    {"story", "{opening} {act} {meeting} {scene} {scene} {ending}\n\n"},

    {"opening", "40*Once upon a time, in {town}, there was a {trait} {+beast} named {+name}.|"
                "40*Once upon a time a {trait} {+beast} named {+name} had {n} {look} {thing}s.|"
                "40*In {year} {+name}, a {trait} {+beast} from {town}, {got} a {look} {thing}.|"
                "40*In {town} lived {who} the {folk} and a {trait} {+beast} named {+name}.|"
                "40*{+name} was a {trait} {+beast} from {town}, {n} miles from {town}.|"
                "40*At {clock}, {+name} the {trait} {+beast} woke up {feel} in {town}.|"
                "40*This is {+name}, a {trait} {+beast} with {n} {thing}s and a {look} {thing}.|"
                "40*\"{^cry}!\" sang {+name}, a {trait} {+beast} with {n} {look} {thing}s.|"
                "Long ago a {trait} {+beast} named {+name} lived by the {place} in {town}.|"
                "One {weather} {daytime} {+name}, a {trait} {+beast}, {went} to the {place}.|"
                "My {kin} {who} told me of {+name}, a {trait} {+beast} from {town}."},

    {"act", "40*{^name:he} had a {look} {thing}, a {look} {thing} and {n} {look} {thing}s.|"
            "40*{^name:he} {got} {n} {look} {thing}s for {who}, {n} for {who} and {n} for {who}.|"
            "40*{^name:he} {went} {how} to {town} with {n} {thing}s and a {trait} {beast}.|"
            "40*{^name:he} {went} to {town} at {clock} to see {who}, {who} and {who}.|"
            "40*{^name:his} {trait} {beast}s, {who}, {who} and {who}, {ate} {n} {dish}.|"
            "40*{^name:his} {folk} {who} {ate} {n} {dish}, {n} {dish} and {n} {dish}.|"
            "40*At {clock} {n} {trait} {beast}s and {who} {went} to {town}.|"
            "40*\"{^cry}, {cry}!\" {said} {who} of {town}, a {trait} {folk}.|"
            "40*\"{^cry}!\" {said} {n} {trait} {beast}s. \"{^cry}, {cry}!\" {said} {who}.|"
            "40*A {trait} {folk} named {who} {got} {n} {look} {thing}s in {town}.|"
            "40*{^cry}! A {look} {thing} fell on {who}, {who} and {n} {thing}s.|"
            "{^name:he} loved {food}, {food} and {look} {thing}s.|"
            "{^name:his} {body} was {look}, and {name:his} {cloth} were {look}.|"
            "All {daytime} {name:he} {went} from the {place} to the {place}.|"
            "In {month} {name:he} sold {n} {look} {thing}s to {who} for {n} {coin}.|"
            "On {weekday} {name:he} met {name:his} {kin} {who} in the {place}.|"
            "With a {sound} a {look} {thing} fell on {name:his} {body}."},

    {"meeting", "40*Then {+pal}, a {trait} {folk} from {town}, came with a {look} {+thing}.|"
                "40*One day {name:he} met {+pal}, a {trait} {folk} with a {look} {+thing}.|"
                "40*There {name:he} saw a {look} {+thing}, {n} {thing}s and {+pal}, a {trait} {folk}.|"
                "40*But {+pal}, a {trait} {folk} from {town}, {got} a {look} {+thing}.|"
                "By the {place} {name:he} saw {+pal}, a {trait} {folk} with a {look} {+thing}."},

    {"scene", "{act}|{talk}|{deed}"},
    {"talk", "40*\"I am {feel},\" {said} {=pal}. \"Get me {n} {dish} and {n} {dish}!\"|"
             "40*\"My {thing} is {look}, and {who} is {feel},\" {said} {pal:he} {how}.|"
             "40*\"Go to {town} at {clock},\" {said} {who} the {folk}. \"{^cry}, {cry}!\"|"
             "40*\"We need {n} {thing}s, {who} and {n} {trait} {folk}s,\" {said} {=pal}.|"
             "40*\"Is the {=thing} {look}?\" {said} {who}. \"It is {look} and {look},\" {said} {pal:he}.|"
             "40*\"{^cry}! {^cry}!\" {said} {=pal}, and {n} {beast}s {went} {how}.|"
             "40*\"Meet {who}, {who} and {who} of {town} at {clock},\" {said} {pal:he}.|"
             "\"You are a {trait} {=beast},\" {said} {=pal} {how}.|"
             "\"What a {weather} {daytime}!\" {said} {=name}. \"I want {food} and {food}.\""},
    {"deed", "40*{=pal} {got} {n} {look} {thing}s and a {look} {thing} in {town}.|"
             "40*So {pal:he} {got} {n} {thing}s for {who} and {n} for {who} of {town}.|"
             "40*So they {went} {how} to {town}, {n} miles from {town}, to see {who}.|"
             "40*They saw {n} {trait} {beast}s, {n} {trait} {folk}s and {who} of {town}.|"
             "40*It was {clock}, and {who}, {who} and {who} were {feel}.|"
             "40*It was a {look} {thing} with {n} {look} {thing}s. {^cry}!|"
             "40*It took {n} days, {n} {coin} and {n} {trait} {folk}s.|"
             "{=name} and {=pal} {went} to the {place} for {food}.|"
             "{^sound}, {sound}, went the {=thing} in the {place}."},

    {"ending", "40*And so {name:he} {went} {how} to {town} with {n} {thing}s.|"
               "40*And so they {ate} {n} {dish} and {n} {dish} with {who} of {town}.|"
               "40*At last the {=thing} was {look}, and {who} {got} {n} {thing}s.|"
               "40*In the end {=pal} was {feel}, and {=name} sang \"{^cry}, {cry}!\"|"
               "40*In {town} they still sing \"{^cry}, {cry}, {cry}!\"|"
               "From that {weekday} on {=name} and {=pal} were {trait} and {trait}.|"
               "The {=thing} is in the {place} to this day."},

    /* Who: gender for the pronouns. Heroes and friends have no name in common. */
    {"name",
     "Ada/f|Amy/f|Ann/f|Ben/m|Bob/m|Dan/m|Deb/f|Eve/f|Gus/m|Hal/m|Ida/f|Ivy/f|Jim/m|Ken/m|Liz/f|Max/m|Meg/f|Mia/f|"
     "Ned/m|Pam/f|Ray/m|Sue/f|Ted/m|Tim/m"},
    {"pal",
     "Art/m|Bea/f|Bud/m|Dee/f|Dot/f|Fay/f|Flo/f|Ian/m|Ike/m|Jan/f|Jed/m|Joe/m|Joy/f|Kay/f|Kim/f|Kit/m|Len/m|Leo/m|"
     "Moe/m|Peg/f|Rex/m|Roy/m|Sam/m|Zoe/f"},
    CLASS(
        "beast",
        "bat|bee|bug|cat|cow|cub|dog|hen|hog|jay|kid|pig|pup|ram|rat|yak|ant|ape|doe|eel|elk|emu|ewe|owl|bear|bird|"
        "bull|"
        "clam|colt|crab|crow|dove|duck|frog|goat|gull|hare|hawk|lamb|lark|lion|mole|moth|mule|newt|seal|slug|swan|toad",
        "camel|flea|gecko|ghost|giant|gnat|gnome|hippo|horse|koala|llama|panda|prawn|quail|raven|rhino|robin|wasp|worm|"
        "wren",
        "badger|beaver|buffalo|cheetah|chicken|cricket|dolphin|donkey|dragon|eagle|elephant|falcon|ferret|"
        "flamingo|gerbil|giraffe|gorilla|hamster|heron|iguana|jaguar|kangaroo|kitten|leopard|lizard|lobster|monkey|"
        "mosquito|otter|parrot|peacock|pelican|penguin|poodle|possum|rabbit|raccoon|rooster|scorpion|"
        "shark|shrimp|skunk|sloth|snail|snake|spider|squid|squirrel|stork|tadpole|termite|tiger|tortoise|toucan|troll|"
        "turkey|turtle|unicorn|vulture|weasel|whale|wizard|wombat|zebra"),
    CLASS("folk", "king|duke|maid|cook|monk|poet|chef|clerk|nurse|judge|nun|vet|lord|lad|girl|boy",
          "baker|boxer|clown|guard|guide",
          "actor|admiral|author|banker|barber|baron|butler|captain|cowboy|dancer|dentist|doctor|driver|editor|emperor|"
          "farmer|fiddler|general|hunter|janitor|jester|jeweler|jockey|juggler|knight|lawyer|mayor|miller|miner|orphan|"
          "painter|pilot|pirate|plumber|potter|prince|queen|ranger|sailor|scout|senator|servant|sheriff|singer|smith|"
          "soldier|student|surgeon|tailor|teacher|tourist|twin|umpire|usher|viking|waiter|weaver|writer"),
    CLASS("kin", "aunt|dad|mom|son|twin|wife", "boss|niece|pupil|rival",
          "brother|cousin|daughter|friend|grandma|grandpa|helper|husband|mother|nephew|partner|sister|uncle"),
    CLASS(
        "trait",
        "sad|shy|sly|mad|fat|big|bad|fit|bold|busy|calm|cold|cool|cute|fair|fast|glad|good|grim|hard|keen|kind|lazy|"
        "lean|"
        "loud|mean|meek|mild|neat|nice|poor|rich|rude|sick|slow|smug|sore|tall|tame|thin|tidy|tiny|vain|warm|weak|wild|"
        "wise",
        "bald|brave|chubby|clever|clumsy|cranky|cruel|dizzy|dreamy|funny|furry|giddy|grand|happy|hardy|jolly|lucky|"
        "merry|"
        "moody|nasty|noble|noisy|perky|plump|proud|quick|quiet|rosy|sassy|silly|slim|small|smart|sweet|timid|tired|"
        "tough|"
        "witty|young|zany",
        "careful|charming|cheerful|cunning|curious|daring|dashing|drowsy|famous|fearless|fierce|fluffy|foolish|"
        "forgetful|"
        "friendly|generous|gentle|gloomy|graceful|greedy|grumpy|handsome|haughty|helpful|heroic|humble|hungry|jealous|"
        "lively|lonely|loyal|mighty|modest|mysterious|nervous|nimble|patient|peaceful|playful|polite|popular|reckless|"
        "scared|selfish|sensible|serious|shaggy|sleepy|sneaky|snobby|speedy|spotted|strong|stubborn|sturdy|talkative|"
        "tender|thirsty|thoughtful|tricky|trusty|wealthy|wicked|worried|wrinkled"),

    /* What. */
    CLASS(
        "thing",
        "bag|bed|bell|bib|bin|boat|book|boot|bow|can|cap|coin|cog|cot|cup|doll|drum|fan|flag|fork|gem|hat|hoe|jar|jet|"
        "jug|"
        "keg|key|kite|lamp|lid|log|map|mask|mat|mop|mug|net|nut|pad|pan|peg|pen|pin|pot|rag|ring|rod|rope|rug|saw|sled|"
        "sock|tent|tie|top|toy|tray|tub|van|vat|vest|wand|wig",
        "ball|bead|belt|bike|bolt|bone|bulb|cage|card|cart|coat|comb|cord|cork|dart|desk|disk|door|gate|gong|harp|hook|"
        "hoop|horn|hose|knob|knot|lock|lute|nail|nest|note|pail|pipe|plow|plug|pole|pump|raft|rake",
        "anchor|anvil|apron|arrow|badge|bandage|banjo|banner|barrel|basket|blanket|block|bonnet|bottle|bracelet|brick|"
        "broom|bucket|button|camera|chain|chair|cloak|clock|cradle|crate|crown|curtain|cushion|dagger|diamond|domino|"
        "drill|engine|envelope|feather|fiddle|flute|frame|funnel|globe|glove|goblet|guitar|hammer|handle|helmet|jacket|"
        "jewel|kettle|ladder|lantern|lever|magnet|medal|mirror|mitten|motor|napkin|necklace|needle|organ|package|"
        "pearl|pebble|pedal|piano|pillow|pitcher|plank|plate|prize|pulley|puppet|purse|puzzle|quill|quilt|racket|razor|"
        "ribbon|robe|rocket|ruler|sack|saddle|sail|satchel|scale|scooter|seed|shawl|shell|shield|shirt|shoe|shovel|"
        "sign|"
        "skate|skirt|slipper|sofa|spade|spear|sponge|spool|spoon|spring|stamp|statue|stick|stool|stove|strap|straw|"
        "string|"
        "suitcase|sweater|sword|table|tack|teapot|telescope|thimble|thread|ticket|tile|towel|tractor|trap|truck|"
        "trumpet|"
        "trunk|umbrella|vase|veil|violin|wagon|wallet|wheel|whistle|window|wire|zipper"),
    CLASS(
        "look",
        "bad|big|dim|dry|fat|hot|low|new|raw|red|tan|tin|wet|fun|bent|blue|cold|cool|cozy|damp|dark|deep|dull|fine|"
        "flat|"
        "gold|good|gray|hard|huge|long|lost|neat|nice|pale|pink|rare|soft|tall|thin|tidy|tiny|torn|warm|weak|wide|wild",
        "beige|black|brass|brown|bumpy|cheap|clean|crisp|curly|dirty|dusty|faded|fancy|fresh|fuzzy|glass|green|hairy|"
        "heavy|"
        "large|leaky|light|limp|loose|lumpy|magic|messy|mossy|muddy|paper|plain|rough|round|royal|rusty|salty|sandy|"
        "silk|"
        "sour",
        "borrowed|bouncy|bright|broken|bronze|checkered|clumsy|copper|costly|cracked|creaky|crimson|crooked|crunchy|"
        "dotted|"
        "famous|filthy|floppy|foggy|folded|fragile|frozen|glittery|golden|greasy|handy|haunted|hidden|hollow|homemade|"
        "jagged|jingly|leather|little|lovely|marble|modern|narrow|painted|patched|perfect|pointed|polished|precious|"
        "pretty|purple|rubber|scarlet|secret|shabby|sharp|shiny|short|silver|simple|slimy|smelly|smooth|sparkly|square|"
        "squeaky|stale|steel|sticky|stiff|stolen|stone|strange|striped|thick|tight|turquoise|twisted|velvet|violet|"
        "white|"
        "wobbly|wooden|woolly|yellow"),
    CLASS("dish", "eggs|figs|nuts|peas|yams|buns|pies|plums|pears|beans|dates|limes|rolls|tarts|leeks|beets",
          "apples|clams|grapes|kiwis|lemons",
          "almonds|apricots|bananas|berries|biscuits|carrots|cherries|chestnuts|coconuts|cookies|crackers|doughnuts|"
          "dumplings|lentils|mangos|melons|muffins|noodles|olives|onions|oranges|pancakes|peaches|peanuts|peppers|"
          "pickles|potatoes|pretzels|pumpkins|radishes|raisins|sausages|tomatoes|turnips|waffles|walnuts"),
    {"food",
     "ham|ice|jam|milk|pie|rice|rye|salt|soup|tea|corn|cake|fish|meat|stew|bread|butter|candy|cheese|cocoa|cream|"
     "fruit|garlic|gravy|honey|jelly|juice|lettuce|mustard|pasta|popcorn|porridge|pudding|salad|sauce|spinach|"
     "sugar|syrup|toast|water|yogurt"},
    {"cloth", "boots|clogs|gloves|jeans|mittens|pajamas|pants|sandals|shoes|shorts|skates|slippers|sneakers|socks|"
              "stockings|tights|trousers"},
    CLASS(
        "body", "arm|ear|leg|nose|tail|toe", "back|brow|chin|face|foot|hair|jaw|lip",
        "beard|belly|cheek|chest|elbow|finger|hand|head|heel|knee|mouth|neck|shin|skin|thumb|tongue|tooth|voice|waist|"
        "wrist"),
    CLASS("coin", "coins|cents|dimes|pence", "euros|francs|pounds|rubies", "dollars|nickels|pennies|shillings"),

    /* Doing. */
    CLASS(
        "got", "got|saw|hid|cut|won|lost|sold|kept|made|took|found|held|drew|hung|sent|used",
        "bit|bought|broke|built|burned|felt|fixed|hated|lent|liked|shook|spun|stole|swept|threw|wore",
        "admired|begged for|borrowed|buried|carried|caught|cleaned|collected|counted|dragged|dropped|dusted|emptied|"
        "examined|forgot|guarded|hugged|ignored|invented|kicked|kissed|lifted|misplaced|needed|noticed|ordered|painted|"
        "polished|praised|pulled|pushed|rented|repaired|rescued|sat "
        "on|scrubbed|searched|showed|smelled|spotted|squeezed|"
        "tickled|touched|traded|washed|weighed|wrapped"),
    CLASS("went", "ran|swam|rode|flew|slid|crept|raced|hiked|went|walked|jumped|skated|sailed|rolled|hopped|fled",
          "biked|cycled|drove|rowed|spun",
          "bounced|charged|climbed|crawled|danced|dashed|drifted|floated|galloped|hobbled|hurried|jogged|journeyed|"
          "leaped|limped|marched|paddled|paraded|rushed|sauntered|scurried|shuffled|skipped|slipped|sneaked|sprinted|"
          "stepped|strolled|stumbled|tiptoed|traveled|trotted|trudged|tumbled|waddled|waltzed|wandered|zoomed"),
    CLASS(
        "said", "said|cried|sang|yelled|called|wept|lied|joked",
        "barked|cursed|hissed|howled|hummed|moaned|prayed|purred|roared|sighed",
        "answered|announced|bellowed|boasted|cheered|chirped|chuckled|complained|croaked|declared|explained|giggled|"
        "groaned|growled|grumbled|grunted|insisted|laughed|mumbled|murmured|muttered|pleaded|promised|replied|shouted|"
        "shrieked|smiled|snapped|sobbed|squeaked|stammered|thought|whined|whispered|whistled|yawned"),
    {"ate", "ate|baked|boiled|cooked|fried|grew|peeled|stole"},
    CLASS("how", "far|fast|well|home|late|soon|twice|slowly|sadly|softly|badly|gladly|again|alone|away|early",
          "dimly|madly|oddly|often|shyly",
          "at once|backwards|bravely|calmly|carefully|clumsily|coldly|eagerly|gently|grandly|happily|in "
          "tears|insecret|kindly|lamely|lazily|loudly|meekly|merrily|neatly|nervously|nicely|on "
          "tiptoe|patiently|politely|proudly|quickly|quietly|rudely|sideways|silently|sleepily|suddenly|sweetly|thrice|"
          "warmly|weakly|wearily|wildly|wisely|with joy"),
    CLASS(
        "feel", "glad|ill|mad|sad|well|late|sore|fine|hurt|safe|sick|sure|lost|free|full|numb",
        "alone|angry|awake|bored|cross|eager|moved|ready|smug|sorry|stuck|tense|upset|weary",
        "afraid|amazed|ashamed|asleep|baffled|better|confused|content|delighted|excited|faint|furious|grateful|hopeful|"
        "impatient|jealous|joyful|miserable|nervous|pleased|puzzled|relaxed|relieved|restless|satisfied|shocked|"
        "speechless|"
        "startled|surprised|thankful|thrilled|uneasy|unhappy|wrong"),

    /* Where and when. */
    {"place",
     "bank|barn|bay|beach|bridge|cabin|camp|castle|cave|church|cliff|creek|desert|dock|farm|field|forest|fountain|"
     "garden|harbor|hill|hotel|hut|inn|island|jungle|kitchen|lake|library|lighthouse|market|meadow|mill|mine|"
     "mountain|museum|orchard|palace|park|pond|port|prison|river|road|school|shop|shore|stable|station|street|"
     "swamp|temple|theater|tower|tunnel|valley|village|volcano|waterfall|well|woods|yard|zoo"},
    {"weather",
     "breezy|chilly|cloudy|foggy|freezing|frosty|hazy|humid|mild|misty|rainy|snowy|stormy|sunny|windy|wintry"},
    {"daytime", "afternoon|day|evening|morning|night|summer|week|winter"},
    {"weekday", "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday"},
    {"month", "January|February|March|April|May|June|July|August|September|October|November|December"},
    {"sound",
     "bang|boing|boom|bump|clang|clank|click|crack|crash|creak|plop|rattle|rumble|splash|splat|squish|swish|thud|"
     "thump|twang|whack|whoosh"},

    /* Unpredictable parts: names of people and towns, cries, numbers. */
    {"who", "{^con}{vow}{con}|{^con}{vow}{con}{vow}|{^con}{vow}{con}{vow}{con}"},
    {"town", "{^con}{vow}{con}{vow}{con}|{^con}{vow}{con}{vow}{con}{vow}"},
    {"cry", "{con}{vow}{con}|{con}{vow}{con}{vow}|{con}{vow} {con}{vow}{con}"},
    {"con", "b|d|f|g|h|j|k|l|m|n|p|r|s|t|v|w|y|z"},
    {"vow", "a|e|i|o|u"},
    {"n", "{nz}{d}|{nz}{d}{d}"},
    {"year", "1{d}{d}{d}"},
    {"clock", "{hour}:{tens}{d}"},
    {"hour", "1|2|3|4|5|6|7|8|9|10|11|12"},
    {"tens", "0|1|2|3|4|5"},
    {"nz", "1|2|3|4|5|6|7|8|9"},
    {"d", "0|1|2|3|4|5|6|7|8|9"},
};
const int n_corpus_source = (int)(sizeof corpus_source / sizeof *corpus_source);
