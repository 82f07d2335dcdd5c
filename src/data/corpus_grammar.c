/* corpus_grammar.c: the words and sentences of the built-in corpus. corpus.h says how it is written, corpus.c what it
 * means.
 *
 * What the tests hold it to: every rule is prefix-free (so words that begin with another word of their list are left
 * out, "pan" beside "pancake"); what is recalled was introduced on every path; what follows "a" begins with a
 * consonant; no story has STORY_MAX bytes; more than 1,000 words; between 1 and 3 bits per byte.
 *
 * English alone has about half a bit per byte in sentences as regular as these. Names, songs, numbers and signs bring
 * it above one: they are short, new in every story, and some of them have to be remembered to its end. Names of heroes
 * end with a vowel and those of friends with a consonant, so that the two are never the same.
 */
#include "data/corpus.h"

const struct rule_source corpus_source[] = {
    {"story", "{opening} {extra} {plot} {extra2} {ending}\n\n"},
    {"opening",
     "Once upon a time, in the land of {+land}, there lived a {trait}, {trait2} {+hero} named {+name}.|"
     "Long ago, a {trait} {+hero} called {+name} lived at {house} in {+land}.|"
     "In {+land}, where the {critter}s {dance} and the {looking} {food} grow, there was a {trait} {+hero}. "
     "{^hero:his} name was {+name}.|"
     "Do you know {+name}, the {trait} {+hero} from {+land}? {^hero:he} lives at {house} with {many} {looking} "
     "{critter}s.|"
     "My {trait} {job} used to tell me about {+name}, a {+hero} who was born in {+land} in the year {year}.|"
     "This is the story of {+name}, the {trait} {+hero} of {+land}, and of {hero:his} {looking} {hat}.|"
     "Far away in {+land} lived {many} {trait} {critter}s and one {trait2} {+hero} with a {looking} {hat}. The "
     "{=hero} was called {+name}.|"
     "Nobody in {+land} was as {trait2} as {+name}, a {+hero} who loved {food} and {looking} {thing}s."},
    {"house", "{nz}{d} {^looking} {street}|"
              "{nz}{d}{d} {^critter} {street}|"
              "{nz}{d}{d}{d} {^thing} {street}"},
    {"street", "Lane|Road|Street|Hill|Square|Path|Way|Alley|Row|Court"},
    {"year", "1{d}{d}{d}"},
    {"plot", "{lost}|{spell}|{market}|{race}|{garden}|{door}|{party}|{trip}|{storm}|{mend}|{show}|{soup}|{letter}"},
    {"extra",
     "{^hero:his} {kin}s were {nick}, {nick}, {nick} and {nick}, and they sang \"{stanza}\" The sign on "
     "{hero:his} {looking} {vehicle} was {+plate}.|"
     "{^hero:he} had a {looking} {robot} that knew one word, {+plate}, and one song: \"{stanza}\"|"
     "{^hero:he} could {dance}, {dance2} and sing \"{stanza}\" And {hero:he} had a {looking} secret: {+plate}.|"
     "Everyone knew {hero:his} {kin}s, {nick}, {nick} and {nick}, and {hero:his} song, \"{stanza}\" In {hero:his} "
     "{hat} was a note: {+plate}."},
    {"extra2",
     "Then they sang \"{stanza}\" And {nick} the {trait} {critter} wrote {msg} on a {looking} {thing}.|"
     "\"{=plate}!\" {said} {elder}, who was {feeling}. \"{msg}!\" And {nick}, {nick} and {nick} sang \"{stanza}\"|"
     "It was {month} {nz}, {year}, and the {bell} struck {clock}. {title} {family} sang \"{stanza}\" and gave "
     "{hero:him} ticket {msg}.|"
     "From {spot} came {nick}, {nick} and {nick}, {many} {looking} {critter}s, with the {looking} map {msg}. They "
     "sang \"{stanza}\""},
    {"stanza", "{^verse}, {verse}, {verse}! {^verse}, {verse}, {verse}!|"
               "{^verse}, {verse}! {^verse}, {verse}! {^verse}!|"
               "{^verse}, {verse}, {verse}, {verse}. {^verse}, {verse}, {verse}."},
    {"kin", "sister|brother|cousin|uncle|aunt|niece|nephew|pet|friend|pupil"},
    {"robot", "robot|parrot|radio|piano|canary|teapot|phonograph|clockwork|cuckoo|kettle"},
    {"dance2", "swim|cook|fly|read|dive|whisper|climb|count|sneeze|jump|sew|bake|fish"},
    {"title2",
     "Mrs.|Mr.|Miss|Dr.|Captain|Professor|Judge|Mayor|Uncle|Aunt|Cousin|Grandma|Grandpa|Nurse|Sir|Lady|Lord|Chef"},
    {"verse", "{syl}{syl} {syl}{syl}{syl}|{syl}{syl}{syl} {syl}{syl}|{syl}{syl}{syl}{syl}|{syl}{syl}{syl}{syl}{syl}"},
    {"plate", "{k}{k}{k}{k}{k}-{k}{k}{k}{k}{k}|"
              "{k}{k}{k}{k}-{k}{k}{k}-{k}{k}{k}{k}|"
              "{k}{k}{k}-{k}{k}{k}{k}{k}-{k}{k}{k}"},
    {"msg", "{k}{k}{k}{k}{k}{k}{k}-{k}{k}{k}{k}{k}|"
            "{k}{k}{k}{k}{k}{k}-{k}{k}{k}{k}{k}{k}|"
            "{k}{k}{k}-{k}{k}{k}{k}{k}{k}{k}-{k}{k}{k}"},
    {"k", "0|1|2|3|4|5|6|7|8|9|B|C|D|F|G|H|J|K|L|M|N|P|Q|R|S|T|V|W|X|Z"},
    {"lost", "{when} {=name} could not find {hero:his} {+looking} {+thing}. {search} {found} {joy}"},
    {"when", "One {weather} {daytime}|On a {weather} {weekday}|At {clock}|Last {month}|{many2} days later"},
    {"search", "{^hero:he} {looked} {under} the {looking} {thing}, but there {was_only}.|"
               "\"Have you seen it?\" {hero:he} asked a {trait} {critter}. \"No,\" {said} the {critter2}, \"but I have "
               "{many} {thing}s.\"|"
               "Looking {under} the {looking} {thing}, {=name} found {many} {looking} {thing}s and {many2} {food}.|"
               "The {trait} {critter} {said}, \"Try {spot}!\" So {hero:he} {went} to {spot}, but {felt_bad}."},
    {"was_only", "was only a {trait} {critter}|"
                 "were only {many} {looking} {thing}s|"
                 "was nothing but {food}"},
    {"found",
     "At last, {hero:he} {looked} {under} {hero:his} own {hat}. There it was, the {=looking} {=thing}!|"
     "Then a {trait} {+friend} named {+pal} came by and {said}, \"Is this {=looking} {=thing} yours?\" It was! "
     "{^friend:he} had found it at {spot}.|"
     "In the end, the {=looking} {=thing} was in {spot}, and a {trait} {critter} was {sitting} on it."},
    {"joy", "{^hero:he} {laughed} and {danced} {manner} until {clock}.|"
            "\"Hooray!\" {hero:he} {said} {manner}, and gave everyone {food}.|"
            "What a {trait} {daytime} it was!|"
            "{^hero:he} {hugged} it {manner} and {hugged} it again."},
    {"spell",
     "{^weekday}s were for magic, and {=name} knew one magic word. It was \"{+charm},\" and {hero:he} had learned "
     "it from {elder}. {trouble} {used} {worked}"},
    {"trouble",
     "Now a {trait} {+friend} named {+pal} had a {looking} {+thing} that was {stuck} {under} a {looking} {thing}.|"
     "One {daytime}, {many} {trait} {critter}s were {stuck} in {spot}, and so was {+pal}, a {trait2} {+friend}. "
     "Only a {looking} {+thing} could help.|"
     "Then {+pal}, the {trait2} {+friend} next door, broke a {looking} {+thing} and began to {cry}."},
    {"used", "So {=name} {gazed} {manner} at the {=thing} and {said}, \"{^=charm}!\"|"
             "\"{^=charm}, {=charm}!\" {said} {=name} {manner}, and {danced} around the {=thing}.|"
             "\"Please say the word,\" {said} {=pal}. {=name} took a {looking} breath. \"{^=charm}!\""},
    {"worked", "{^pop}! The {=thing} turned into {many} {looking} {thing}s, and {=pal} {laughed} {manner}.|"
               "{^pop}! {^pop}! Suddenly {friend:he} had a {looking} {hat} on {friend:his} head, and the {=thing} was "
               "{good} again.|"
               "Nothing happened. \"You must say it {manner},\" {said} {=pal}. So they said \"{=charm}\" together, and "
               "{pop}, the {=thing} was {good}."},
    {"market",
     "{shopping} {^hero:he} bought {+list} for {coins} coins, and {hero:he} put it all into a {looking} {bag}. "
     "{carry} {check_list}"},
    {"shopping", "It was market day in {=land}, and {=name} took {hero:his} {looking} {bag}.|"
                 "Because {hero:his} {job} was {feeling}, {=name} {went} to the market at {clock}.|"
                 "{^weekday} came, and there were no {food} left at home. {=name} {went} to the market."},
    {"list", "{many} {looking} {thing}s, {many2} {food} and a {looking} {thing}|"
             "a {looking} {thing}, a {looking2} {thing2} and {many} {food}|"
             "{many2} {food}, {many} {looking} {food2} and {many3} {thing}s"},
    {"coins", "{nz}{d}|{nz}{d}{d}"},
    {"carry", "On the way home {hero:he} met {+pal}, a {trait} {+friend}. \"What is in your {bag}?\" asked {=pal}.|"
              "A {trait} {+friend} {danced} by. It was {+pal}! \"You look {feeling},\" {said} {=pal}. \"What do you "
              "carry?\"|"
              "\"That looks heavy,\" {said} {+pal}, a {trait} {+friend} with {looking} {shoe}s."},
    {"check_list", "\"I have {=list},\" {said} {=name} {manner}. {=pal} carried half of it.|"
                   "\"Only {=list},\" {said} {=name}, and gave {friend:him} a {looking} {thing}.|"
                   "\"Guess!\" {said} {=name}. {=pal} guessed {many} {thing}s, but it was {=list}."},
    {"race",
     "Every {month} there was a great race in {=land}, from {spot} to {spot2}. {+pal}, a {trait} {+friend}, wore "
     "number {+number}, and {=name} wore {looking} {shoe}s. {run} {middle_race} {win}"},
    {"number", "{k}{k}{k}|{k}{k}{k}{k}"},
    {"run", "\"{count_off}!\" {said} {elder}, and off they {went}.|"
            "At {clock} a {looking} {bell} rang. {=name} {went} {manner}, and {=pal} {went} {manner2}.|"
            "They ran past {many} {critter}s, {many2} {looking} {thing}s and {elder}."},
    {"count_off", "{n}, {n}, {n}, go|{syl}, {syl}, {syl}"},
    {"middle_race",
     "But at {spot}, {=name} stopped to help a {trait} {critter} who had lost {many} {food}.|"
     "But in {spot}, number {=number} fell over a {looking} {thing}. \"Ouch!\" {said} {=pal}.|"
     "Halfway there, both of them saw {many} {trait} {critter}s {sitting} on a {looking} {thing}, and {laughed}."},
    {"win", "So {=pal} won by {many} steps, and number {=number} is on the wall of {spot} to this day.|"
            "In the end {=name} won a {looking} {hat} and gave it to {=pal}, since {friend:he} was {feeling}.|"
            "They came in together, after {n}{d} minutes, and everybody {laughed} {manner}."},
    {"garden",
     "{=name} had a garden with {many} {looking} {plant}s, but {hero:he} wanted {+food} most of all. {plant_it} "
     "{harvest}"},
    {"plant_it", "So {hero:he} {dug} {many} holes with a {looking} {thing} and planted them {manner}.|"
                 "In {month} {hero:he} put {n}{d} seeds into the {looking} ground, and sang \"{song}\" to them."},
    {"harvest",
     "At last there were {n}{d}{d} {=food}, as {looking} as a {looking2} {thing}. {^hero:he} shared them with "
     "{+pal}, a {trait} {+friend}, and {friend:he} {laughed} {manner}.|"
     "Then, at {clock}, up they came: {looking} {=food}, {looking} {food2}, and one {looking} {thing} that nobody "
     "had planted!|"
     "But the {critter}s had eaten the {=food}. \"Never mind,\" {said} {=name}, and planted {many} more {manner}."},
    {"door",
     "Behind {spot} in {=land} there was a {looking} door, and on it was a lock with {many} {looking} {thing}s. A "
     "{trait} {+friend} named {+pal} {whispered}, \"The number is {+code}.\" {wait_door} {open_door}"},
    {"code", "{d}{d}{d}{d}{d}{d}|{d}{d}-{d}{d}-{d}{d}-{d}{d}"},
    {"wait_door",
     "{=name} wrote it on a {looking} {thing}. The {=friend} {laughed}.|"
     "\"Do not forget it,\" {said} {=pal}. \"I forgot it once, and had to eat {food} for {many} {weekday}s.\"|"
     "{=name} said it to {hero:self} all the way to the {looking} door, past {many} {trait} {critter}s."},
    {"open_door",
     "{^hero:he} typed {=code}, and the door went {pop}. Inside were {many} {looking} {thing}s and a {trait} "
     "{critter}.|"
     "\"{=code},\" {said} {=name} {manner}. {^pop}! Behind the door was nothing but {food}, {many} {bag}s of "
     "them.|"
     "With {looking} fingers {hero:he} put in {=code}. The door opened, and {elder} {said}, \"You are late. Have "
     "some {food}.\""},
    {"party", "{party_day} {guest1} {guest2} {party_end}"},
    {"party_day", "{=name} was {n}{d} years old on {month} {n}, and so there was a party at {spot}.|"
                  "\"Come to my party at {clock},\" {=name} wrote, \"and bring {looking} {food}.\""},
    {"guest1", "First came {+pal}, a {trait} {+friend}, with a {looking} {+thing}.|"
               "The first guest was a {trait} {+friend} called {+pal}. {^friend:he} {brought} a {looking} {+thing}."},
    {"guest2", "Next came {many} {critter}s with {many2} {looking} {thing2}s, and {elder} with {food}.|"
               "After that a {trait} {critter} {brought} {food}, {food2} and a {looking} {thing2}.|"
               "Then {many} {trait} {job}s {danced} in. They {brought} {looking} {thing2}s and {many2} {food}."},
    {"party_end",
     "But best of all was the {=thing}. \"Thank you, {=pal},\" {said} {=name} {manner}.|"
     "At {clock} everybody went home, and {=pal} helped to put the {=thing} {under} the {looking2} {hat}.|"
     "\"What shall I do with this {=thing}?\" asked {=name}. \"Put {food} on it!\" {said} {=pal}, and that is "
     "what {hero:he} did."},
    {"trip", "{travel} {on_board} {arrive}"},
    {"travel",
     "In {month} {=name} took {vehicle} number {+number} to {+town}, to see {+pal}, a {trait} {+friend}.|"
     "To get to {+town}, where {hero:his} {trait} {+friend} {+pal} lived, {=name} took the {clock} {vehicle}, "
     "number {+number}."},
    {"vehicle", "train|bus|boat|balloon|tram|ferry|sled|wagon|coach"},
    {"on_board", "On board were {many} {critter}s, {elder} and {many2} {bag}s of {food}.|"
                 "{elder} asked for {hero:his} ticket. \"Number {=number} to {=town},\" {said} {=name} {manner}.|"
                 "{^hero:he} {gazed} out at the {looking} {sight}, ate {food}, and counted {n}{d} {critter}s.|"
                 "Next to {hero:him} sat a {trait} {critter}, {sitting} {manner} on a {looking} {thing}."},
    {"arrive", "\"Welcome to {=town}!\" {said} {=pal}, and gave {hero:him} a {looking} {thing}.|"
               "When {hero:he} got there, {=pal} was {sitting} in {spot} with {many} {looking} {thing}s. \"{^song}!\" "
               "{friend:he} sang.|"
               "They {danced} in {spot}, {danced} in {spot2}, and {went} home with {many} {food}."},
    {"storm", "{thunder} {=name} was {feeling}. {inside} {after}"},
    {"thunder", "{^pop}, went the thunder over {=land}, and {pop2}, went the {looking} roof.|"
                "It rained for {n}{d} days, and {spot} was full of {critter}s.|"
                "A {weather} wind blew {many} {looking} {thing}s past the window."},
    {"inside",
     "\"Let us build a {looking} {+thing},\" {said} {hero:his} {trait} {+friend}, {+pal}. They took {many} "
     "{looking} {thing2}s, some {food} and a {hat}.|"
     "\"Come in!\" {hero:he} {said} to {+pal}, a {trait} {+friend}, who was {sitting} on a {looking} {+thing}. "
     "They ate {food} and told {many} {looking} stories.|"
     "In came {+pal}, a {trait} {+friend}, wet from {hat} to {shoe}, with a {looking} {+thing}. They sang "
     "\"{song}\" {manner}."},
    {"after", "When the {weather} sky came back at {clock}, they took the {=thing} to {spot}.|"
              "\"I like storms now,\" {said} {=pal}, and fell asleep {under} the {=thing}.|"
              "In the {daytime} the storm was gone, and so was the {=thing}. {^=pal} {laughed}: \"The wind wanted it "
              "more!\""},
    {"mend", "Something was wrong with the {+machine} at {spot}. It said \"{noise}\" all {daytime}. \"I can mend it,\" "
             "{said} {=name}, who was {feeling}. {fix1} {fix2} {fixed}"},
    {"machine",
     "clock|organ|piano|rocket|robot|bicycle|fountain|telescope|tractor|lamp|kettle|elevator|typewriter|windmill"},
    {"noise", "{syl}{syl}, {syl}|{syl} {syl} {syl}|{pop}, {pop2}"},
    {"fix1", "{^hero:he} took out {many} {looking} {thing}s and put in {many2} {looking2} {food}.|"
             "First {hero:he} {hugged} it. Then {hero:he} {looked} {under} the {looking} {thing} inside.|"
             "{^hero:he} turned the {looking} wheel {n} times left and {n} times right."},
    {"fix2",
     "\"You need a {looking} {thing},\" {said} {+pal}, a {trait} {+friend} who was {sitting} on the {=machine}.|"
     "A {trait} {+friend} named {+pal} {laughed}. \"Give it some {food}! It is {feeling}.\""},
    {"fixed", "And it was so: soon the {=machine} said \"{noise2}\" instead, and {=pal} was {feeling}.|"
              "They tried it {manner}, and now the {=machine} makes {n}{d} {looking} {food} an hour.|"
              "\"Thank you,\" said the {=machine}. {=name} and {=pal} {gazed} at each other {manner}."},
    {"noise2", "{syl}{syl}{syl}|{syl}-{syl}"},
    {"show", "Tonight was the big show in {=land}, and {=name} had to play the {+machine2} in front of {n}{d}{d} "
             "{critter}s. {nerves} {stage} {applause}"},
    {"machine2", "flute|drum|fiddle|harp|trumpet|banjo|tuba|cello|horn|gong|bagpipe|triangle|ukulele|accordion"},
    {"nerves", "\"I am {feeling},\" {hero:he} {whispered} to {+pal}, a {trait} {+friend}. \"Eat some {food},\" {said} "
               "{=pal}.|"
               "{^hero:his} {trait} {+friend} {+pal} gave {hero:him} a {looking} {thing} for luck."},
    {"stage",
     "Then the {looking} curtain swung open. \"{^song},\" sang {=name} {manner}, and the {=machine2} went {pop}.|"
     "{^hero:he} {hugged} the {=machine2}, took a {looking} breath and played \"{song}\" {n} times.|"
     "But oh! There was a {trait} {critter} {sitting} in the {=machine2}! {=name} played {manner} around it."},
    {"applause", "The {critter}s threw {many} {looking} {thing}s and {n}{d} {food}. They were {feeling}!|"
                 "\"Again!\" {said} {elder} {manner}, and {=pal} {danced} with {many} {critter}s until {clock}.|"
                 "Nobody {laughed}. Nobody spoke. And then all of {=land} {danced} {manner}."},
    {"soup", "\"Today I will cook the {best} soup in {=land},\" {said} {=name}, and put a {looking} pot on the fire. "
             "{put_in} {put_in2} {taste}"},
    {"put_in", "In went {many} {food}, {n}{d} {looking} {food2} and a {looking2} {+thing}.|"
               "{^hero:he} {dug} up {many} {looking} {food}, and put them in with a {looking} {+thing}."},
    {"put_in2", "A {trait} {+friend} called {+pal} came to look. \"It needs {food},\" {friend:he} {said} {manner}.|"
                "\"May I help?\" asked {+pal}, the {trait} {+friend} from {spot}, and put in {many} {food}.|"
                "Then {+pal}, a {trait} {+friend}, {danced} in and dropped {friend:his} {looking} {hat} into the pot."},
    {"taste",
     "They tasted it. It was {looking} and {looking2}, and the {=thing} was still too hard. \"{^pop},\" said the "
     "pot.|"
     "At {clock} it was ready. {^many} {critter}s came to eat, and {=pal} ate {n}{d} bowls.|"
     "\"It tastes like {food} and {weekday}s,\" {said} {=pal}. \"I like it!\" Only the {=thing} did not."},
    {"letter",
     "The postman, a {trait} {critter} with {looking} {shoe}s, {brought} a letter. \"Dear {=name},\" it said, "
     "\"{note} {note2} Yours, {+pal}.\" {reply_end}"},
    {"note", "I am {feeling}, for my {looking} {+thing} is gone.|"
             "please send me {many} {food} and a {looking} {+thing}.|"
             "a {trait} {critter} gave me a {looking} {+thing}, and I do not know why."},
    {"note2", "I live at {house} now, with {many} {critter}s.|"
              "It is {weather} here, and the {food} are {looking}.|"
              "Do you still have the {looking} {hat}? I dream of it every {daytime}."},
    {"reply_end", "On {weekday} {hero:he} sent a {looking} box with {many} {thing}s and {food}.|"
                  "And the {=thing}? It came back in {month}, {looking} and {looking2}.|"
                  "So they met at {spot} at {clock}, and {=pal} had the {=thing} in a {bag}."},
    {"ending", "And {=name} was {feeling} until {hero:he} fell asleep at {clock}.|"
               "That night {=name} dreamed of {many} {looking} {thing}s and a {trait} {critter}.|"
               "From that day on, everyone in {=land} called {hero:him} {=name} the {^trait}.|"
               "\"{moral},\" {said} {hero:his} {trait} {job} {manner}.|"
               "If you go to {=land} in {month}, you can still hear \"{song}\" in {spot}.|"
               "The next {daytime}, {=name} {danced} to {spot} to look for {looking} {food}.|"
               "To this day, {hero:he} keeps {many} {food} {under} {hero:his} {hat}, just in case.|"
               "\"Good night, {=name},\" {said} the {looking} moon. \"Good night, moon,\" {said} {=name}.|"
               "And that is why the {critter}s of {=land} {dance} every {weekday}."},
    {"moral", "A {trait} {critter} is never late|"
              "{^food} taste best with friends|"
              "Never trust a {trait} {critter} with your {hat}|"
              "One {looking} {thing} is worth {many} {looking2} ones|"
              "Be {trait}, be {trait2}, and bring {food}|"
              "Every {thing} was {looking} once"},
    {"land", "{^con}{vow}{syl}{syl}"},
    {"town", "{^con}{vow}{syl}{tail2}"},
    {"tail2", "burg|ville|ton|field|mouth|wick|port|dale"},
    {"name", "{^con}{vow}{syl}"},
    {"pal", "{^con}{vow}{syl}{tail}"},
    {"tail", "b|d|k|l|m|r|x|z"},
    {"charm", "{syl}{syl}-{syl}|{syl}-{syl}{syl}{syl}"},
    {"song", "{syl} {syl} {syl}, {syl} {syl}|{syl}{syl}, {syl}{syl}, {syl}"},
    {"syl", "{con}{vow}"},
    {"con", "b|d|f|j|l|m|n|r|s|t|v|y"},
    {"vow", "a|e|i|o|u"},
    {"d", "0|1|2|3|4|5|6|7|8|9"},
    {"nz", "1|2|3|4|5|6|7|8|9"},
    {"n", "2|3|4|5|6|7|8|9"},
    {"clock", "{hour}:{tens}{d}"},
    {"hour", "1|2|3|4|5|6|7|8|9|10|11|12"},
    {"tens", "0|1|2|3|4|5"},
    {"many", "{nz}{d}|{nz}{d}{d}|{nz}{d}{d}{d}"},
    {"many2", "{nz}{d}|{nz}{d}{d}|{nz}{d}{d}{d}"},
    {"many3", "{nz}{d}|{nz}{d}{d}|{nz}{d}{d}{d}"},
    {"gazed", "gazed|stared|smiled|winked|blinked|frowned|waved|pointed|grinned|nodded|squinted|laughed"},
    {"sight", "hills|lakes|clouds|fields|houses|rivers|deserts|villages|factories|vineyards"},
    {"spot", "{^con}{vow}{syl} {^place}"},
    {"spot2", "{^con}{vow}{syl} {^place2}"},
    {"weekday", "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday"},
    {"month", "January|February|March|April|May|June|July|August|September|October|November|December"},
    {"daytime", "morning|afternoon|evening|night|dawn|noon|midnight|winter|summer|spring|autumn"},
    {"daytime2", "minute|hour|week|lunchtime|teatime|bedtime|sunset|sunrise"},
    {"weather",
     "sunny|rainy|windy|foggy|snowy|stormy|cloudy|frosty|misty|warm|cold|chilly|breezy|gray|golden|bright|dark|"
     "wet|dry|quiet|long|lazy|hot|mild"},
    {"hero",
     "girl/f|boy/m|queen/f|king/m|princess/f|prince/m|witch/f|wizard/m|duchess/f|duke/m|baker/m|painter/f|"
     "miller/m|sailor/f|farmer/m|doctor/f|tailor/m|teacher/f|pirate/m|knight/f|juggler/m|plumber/f|shepherd/m|"
     "goose/f|hen/f|duck/m|cat/f|dog/m|fwolf/m|bear/m|rabbit/m|mouse/f|mole/m|badger/m|beaver/m|hedgehog/m|"
     "squirrel/f|frog/m|toad/m|newt/f|turtle/f|lizard/m|dragon/f|giant/m|troll/m|dwarf/m|fairy/f|mermaid/f|lion/m|"
     "tiger/f|panda/f|koala/f|monkey/m|gorilla/m|giraffe/f|zebra/f|hippo/m|rhino/m|camel/m|llama/f|donkey/m|"
     "pony/f|goat/f|sheep/f|pig/m|cow/f|moose/m|crow/m|robin/m|wren/f|penguin/m|parrot/m|pelican/m|peacock/m|"
     "whale/f|dolphin/f|seal/m|walrus/m|crab/m|snail/m|spider/f|beetle/m|ladybug/f"},
    {"friend",
     "cousin/f|uncle/m|aunt/f|nephew/m|niece/f|neighbor/m|gardener/f|clown/m|captain/f|postman/m|dancer/f|poet/f|"
     "robot/m|ghost/m|snowman/m|scarecrow/m|puppet/f|gnome/m|genie/m|yeti/m|vampire/m|kitten/f|puppy/m|piglet/m|"
     "duckling/m|chick/f|lamb/f|foal/m|cub/f|calf/m|hamster/f|gerbil/m|ferret/m|weasel/f|skunk/m|raccoon/f|"
     "possum/m|platypus/f|kangaroo/f|wombat/m|gecko/m|iguana/f|chameleon/f|tortoise/m|salamander/f|cricket/m|"
     "grasshopper/m|butterfly/f|dragonfly/f|bumblebee/f|firefly/f|moth/f|worm/m|jellyfish/f|starfish/f|seahorse/m|"
     "lobster/m|shrimp/f|flamingo/f|pigeon/m|sparrow/f|swallow/f|raven/m|stork/m|swan/f|turkey/m|rooster/m|bat/m|"
     "reindeer/m|yak/m|mammoth/m|dinosaur/f"},
    {"job", "grandmother|grandfather|uncle|aunt|teacher|nurse|librarian|judge|baker|butcher|barber|cook|mayor|sheriff|"
            "driver|farmer|painter|singer|fiddler|banker|lawyer|professor|detective|dentist|gardener"},
    {"critter",
     "ant|bird|kitten|piglet|lamb|goat|hen|rooster|duck|gosling|swan|pigeon|owl|raven|robin|finch|gull|stork|"
     "parrot|penguin|hamster|rabbit|squirrel|mole|hedgehog|beaver|otter|badger|weasel|bear|cub|lion|tiger|leopard|"
     "panda|koala|monkey|gorilla|camel|llama|donkey|zebra|giraffe|elephant|hippo|rhino|kangaroo|wombat|turtle|"
     "tortoise|frog|toad|newt|lizard|snake|gecko|spider|cricket|beetle|moth|snail|worm|crab|lobster|oyster|seal|"
     "whale|dolphin|shark|eel|dragon|unicorn|troll|giant|ghost|pirate|wizard|robot|clown"},
    {"critter2", "stranger|fellow|beast|creature|traveler|animal|rascal"},
    {"trait",
     "big|small|tiny|huge|tall|short|plump|slim|quick|slow|calm|kind|brave|bold|shy|proud|sad|glad|happy|merry|"
     "jolly|cheery|gentle|quiet|loud|noisy|silly|funny|clever|smart|wise|foolish|lazy|busy|hungry|thirsty|sleepy|"
     "tired|young|wealthy|poor|pretty|lovely|sweet|grumpy|cranky|moody|nervous|worried|scared|fearless|daring|"
     "timid|jumpy|bouncy|polite|rude|careful|careless|helpful|playful|cheerful|thankful|hopeful|graceful|peaceful|"
     "famous|lucky|strange|curious|stubborn|patient|faithful|honored|dreamy|cuddly|fluffy|furry|woolly|bald|curly|"
     "freckled|dusty|muddy|messy|tidy|neat|fancy|greedy|generous|modest|mighty|mysterious|nimble|noble|jealous|"
     "forgetful|talkative|whiskered|wrinkled|chubby|dizzy|drowsy|fierce|friendly|giggly|gloomy|grand|handsome|"
     "humble|mischievous|pale|peculiar|rosy|sensible|serious|skinny|sneaky|speedy|spotted|striped|sturdy|tender|"
     "trusty|warm|wicked|wild|witty|wobbly|zany"},
    {"trait2",
     "big|small|tiny|huge|tall|short|plump|slim|quick|slow|calm|kind|brave|bold|shy|proud|sad|glad|happy|merry|"
     "jolly|cheery|gentle|quiet|loud|noisy|silly|funny|clever|smart|wise|foolish|lazy|busy|hungry|thirsty|sleepy|"
     "tired|young|wealthy|poor|pretty|lovely|sweet|grumpy|cranky|moody|nervous|worried|scared|fearless|daring|"
     "timid|jumpy|bouncy|polite|rude|careful|careless|helpful|playful|cheerful|thankful|hopeful|graceful|peaceful|"
     "famous|lucky|strange|curious|stubborn|patient|faithful|honored|dreamy|cuddly|fluffy|furry|woolly|bald|curly|"
     "freckled|dusty|muddy|messy|tidy|neat|fancy|greedy|generous|modest|mighty|mysterious|nimble|noble|jealous|"
     "forgetful|talkative|whiskered|wrinkled|chubby|dizzy|drowsy|fierce|friendly|giggly|gloomy|grand|handsome|"
     "humble|mischievous|pale|peculiar|rosy|sensible|serious|skinny|sneaky|speedy|spotted|striped|sturdy|tender|"
     "trusty|warm|wicked|wild|witty|wobbly|zany"},
    {"elder", "{title} {family}"},
    {"title",
     "Mrs.|Mr.|Miss|Dr.|Captain|Professor|Judge|Mayor|Uncle|Aunt|Cousin|Grandma|Grandpa|Sister|Brother|Nurse|Sir|"
     "Lady|Lord|Chef|Baron|Colonel|Madam|Count"},
    {"family", "{^con}{vow}{syl}{syl}|{^con}{vow}{syl}{syl}{syl}"},
    {"nick", "{^con}{vow}{syl}|{^con}{vow}{syl}{syl}"},
    {"looking",
     "big|small|tiny|huge|tall|long|thin|wide|round|flat|square|crooked|bent|cracked|torn|new|soft|hard|rough|"
     "smooth|fluffy|fuzzy|furry|hairy|woolly|striped|spotted|dotted|checkered|red|blue|green|yellow|purple|pink|"
     "brown|black|white|gray|violet|scarlet|crimson|turquoise|lilac|beige|golden|silver|copper|bronze|wooden|"
     "glass|paper|stone|brick|rubber|velvet|silk|leather|plastic|rusty|dusty|muddy|sandy|wet|dry|damp|soggy|"
     "sticky|slimy|slippery|shiny|bright|dark|dim|pale|rosy|sparkly|glittery|foggy|frozen|warm|hot|cold|cool|"
     "fresh|stale|sweet|sour|salty|spicy|bitter|crispy|crunchy|chewy|creamy|juicy|ripe|rotten|magic|secret|hidden|"
     "lost|famous|lucky|strange|rare|common|perfect|plain|fancy|pretty|lovely|simple|tricky|tidy|messy|heavy|"
     "light|hollow|floppy|squeaky|creaky|jingly|wobbly|wiggly|bouncy|pointed|curly|twisted|folded|painted|"
     "polished|borrowed|forgotten|haunted|homemade|precious|mighty|modern|cheap|costly|peculiar|cozy|bumpy|lumpy|"
     "greasy|smelly|silent|loud|noisy|fragile|sturdy|wrinkled"},
    {"looking2",
     "big|small|tiny|huge|tall|long|thin|wide|round|flat|square|crooked|bent|cracked|torn|new|soft|hard|rough|"
     "smooth|fluffy|fuzzy|furry|hairy|woolly|striped|spotted|dotted|checkered|red|blue|green|yellow|purple|pink|"
     "brown|black|white|gray|violet|scarlet|crimson|turquoise|lilac|beige|golden|silver|copper|bronze|wooden|"
     "glass|paper|stone|brick|rubber|velvet|silk|leather|plastic|rusty|dusty|muddy|sandy|wet|dry|damp|soggy|"
     "sticky|slimy|slippery|shiny|bright|dark|dim|pale|rosy|sparkly|glittery|foggy|frozen|warm|hot|cold|cool|"
     "fresh|stale|sweet|sour|salty|spicy|bitter|crispy|crunchy|chewy|creamy|juicy|ripe|rotten|magic|secret|hidden|"
     "lost|famous|lucky|strange|rare|common|perfect|plain|fancy|pretty|lovely|simple|tricky|tidy|messy|heavy|"
     "light|hollow|floppy|squeaky|creaky|jingly|wobbly|wiggly|bouncy|pointed|curly|twisted|folded|painted|"
     "polished|borrowed|forgotten|haunted|homemade|precious|mighty|modern|cheap|costly|peculiar|cozy|bumpy|lumpy|"
     "greasy|smelly|silent|loud|noisy|fragile|sturdy|wrinkled"},
    {"thing",
     "bell|doll|kite|drum|broom|bucket|basket|bottle|barrel|button|candle|cradle|carpet|chair|table|stool|pillow|"
     "blanket|curtain|mirror|ladder|hammer|saw|nail|needle|thimble|ribbon|string|rope|whistle|trumpet|flute|"
     "fiddle|harp|book|pencil|crayon|eraser|ruler|map|globe|lantern|lamp|teapot|teacup|saucer|spoon|fork|plate|"
     "bowl|jug|kettle|oven|fridge|window|door|key|lock|gate|fence|bridge|tower|castle|tent|boat|raft|canoe|anchor|"
     "sail|oar|rocket|balloon|wagon|cart|tricycle|scooter|train|truck|tractor|engine|spring|magnet|marble|puzzle|"
     "puppet|mask|crown|ring|necklace|bracelet|brooch|diamond|pearl|emerald|feather|shell|pebble|acorn|flower|"
     "mushroom|nest|egg|cage|statue|painting|poster|letter|stamp|envelope|package|suitcase|umbrella|parasol|cane|"
     "sock|slipper|mitten|glove|scarf|apron|pocket|zipper|towel|sponge|comb|bathtub|pipe|hose|rake|shovel|spade|"
     "plow|hoe|wheelbarrow|pumpkin|pancake|waffle|cookie|muffin|biscuit|pretzel|dumpling|sausage|lollipop|cupcake|"
     "clock|calendar|telephone|camera|microphone|radio|telescope|microscope|thermometer|bandage|medal|ticket|coin|"
     "purse|banner|flag|swing|slide|seesaw|trampoline|domino|cannon|shield|sword|helmet|snowball|icicle|pinwheel|"
     "firework"},
    {"thing2",
     "bell|doll|kite|drum|broom|bucket|basket|bottle|barrel|button|candle|cradle|carpet|chair|table|stool|pillow|"
     "blanket|curtain|mirror|ladder|hammer|saw|nail|needle|thimble|ribbon|string|rope|whistle|trumpet|flute|"
     "fiddle|harp|book|pencil|crayon|eraser|ruler|map|globe|lantern|lamp|teapot|teacup|saucer|spoon|fork|plate|"
     "bowl|jug|kettle|oven|fridge|window|door|key|lock|gate|fence|bridge|tower|castle|tent|boat|raft|canoe|anchor|"
     "sail|oar|rocket|balloon|wagon|cart|tricycle|scooter|train|truck|tractor|engine|spring|magnet|marble|puzzle|"
     "puppet|mask|crown|ring|necklace|bracelet|brooch|diamond|pearl|emerald|feather|shell|pebble|acorn|flower|"
     "mushroom|nest|egg|cage|statue|painting|poster|letter|stamp|envelope|package|suitcase|umbrella|parasol|cane|"
     "sock|slipper|mitten|glove|scarf|apron|pocket|zipper|towel|sponge|comb|bathtub|pipe|hose|rake|shovel|spade|"
     "plow|hoe|wheelbarrow|pumpkin|pancake|waffle|cookie|muffin|biscuit|pretzel|dumpling|sausage|lollipop|cupcake|"
     "clock|calendar|telephone|camera|microphone|radio|telescope|microscope|thermometer|bandage|medal|ticket|coin|"
     "purse|banner|flag|swing|slide|seesaw|trampoline|domino|cannon|shield|sword|helmet|snowball|icicle|pinwheel|"
     "firework"},
    {"food",
     "apples|pears|plums|figs|dates|grapes|cherries|peaches|lemons|limes|melons|bananas|mangoes|berries|olives|"
     "nuts|walnuts|almonds|peanuts|carrots|potatoes|tomatoes|onions|beans|peas|turnips|radishes|beets|peppers|"
     "cucumbers|pickles|mushrooms|noodles|dumplings|pancakes|waffles|cookies|muffins|buns|rolls|pies|tarts|"
     "crackers|pretzels|sandwiches|sausages|meatballs|eggs|omelets|fritters|raisins|jellybeans|caramels|toffees|"
     "marshmallows|gumdrops|doughnuts|biscuits|scones|bagels|parsnips|leeks|oranges|apricots|coconuts|papayas|"
     "pineapples|strawberries|blueberries|raspberries|chestnuts|artichokes"},
    {"food2",
     "apples|pears|plums|figs|dates|grapes|cherries|peaches|lemons|limes|melons|bananas|mangoes|berries|olives|"
     "nuts|walnuts|almonds|peanuts|carrots|potatoes|tomatoes|onions|beans|peas|turnips|radishes|beets|peppers|"
     "cucumbers|pickles|mushrooms|noodles|dumplings|pancakes|waffles|cookies|muffins|buns|rolls|pies|tarts|"
     "crackers|pretzels|sandwiches|sausages|meatballs|eggs|omelets|fritters|raisins|jellybeans|caramels|toffees|"
     "marshmallows|gumdrops|doughnuts|biscuits|scones|bagels|parsnips|leeks|oranges|apricots|coconuts|papayas|"
     "pineapples|strawberries|blueberries|raspberries|chestnuts|artichokes"},
    {"hat", "hat|cap|bonnet|helmet|crown|hood|turban|beret|scarf|wig|cloak|pillow|bed|bucket"},
    {"shoe", "boot|shoe|sandal|slipper|clog|sock|skate|moccasin"},
    {"bag", "basket|sack|bucket|barrel|suitcase|backpack|pouch|purse|wagon|wheelbarrow|trunk|jar|crate"},
    {"bell", "bell|gong|whistle|horn|clock|bugle|cymbal"},
    {"plant", "rose|tulip|violet|sunflower|orchid|daffodil|fern|tree|hedge|shrub"},
    {"place",
     "attic|bakery|barn|bathroom|beach|cabin|castle|cave|cellar|church|circus|desert|dungeon|farm|forest|fountain|"
     "garage|garden|harbor|hospital|island|jungle|kitchen|lagoon|library|lighthouse|market|meadow|mill|mine|"
     "mountain|museum|orchard|palace|park|pond|prison|pyramid|railway|river|ruins|school|stable|stadium|station|"
     "swamp|temple|theater|tower|tunnel|valley|village|volcano|waterfall|windmill|woods|zoo"},
    {"place2",
     "airport|bank|basement|bridge|canyon|cliff|crossroads|dock|field|gate|glacier|hilltop|inn|lake|laundry|moat|"
     "oasis|pier|playground|quarry|restaurant|riverbank|seashore|shop|square|town hall|treehouse|university|"
     "vineyard|well|wharf|workshop"},
    {"feeling",
     "angry|amazed|bored|brave|calm|cheerful|confused|cozy|cross|curious|delighted|dizzy|eager|excited|friendly|"
     "frightened|glad|gloomy|grateful|grumpy|happy|hopeful|hungry|jealous|jolly|lonely|lucky|merry|miserable|"
     "nervous|peaceful|pleased|proud|puzzled|ready|relaxed|relieved|restless|sad|satisfied|shy|silly|sleepy|sorry|"
     "surprised|thankful|thirsty|thrilled|tired|uneasy|upset|warm|weary|wide awake|worried"},
    {"good", "good|whole|new|perfect|shiny|happy|warm|bright|complete|clean|safe|loud|quiet|better"},
    {"best", "best|biggest|hottest|thickest|strangest|finest|sweetest|reddest|longest|loudest|smallest|bravest"},
    {"stuck", "stuck|trapped|hidden|frozen|asleep|lost|snoring|glued|buried|tangled"},
    {"went",
     "walked|ran|hopped|skipped|marched|strolled|wandered|hurried|rushed|dashed|tiptoed|crept|crawled|rolled|"
     "jumped|galloped|trotted|waddled|paddled|rode|sailed|flew|floated|zoomed|slid|skated|danced|bounced|sneaked|"
     "stumbled|swam|cartwheeled"},
    {"danced",
     "danced|twirled|leaped|spun|swayed|bounced|hopped|skipped|wobbled|wiggled|jumped|tumbled|waltzed|pranced|"
     "whirled|shuffled|boogied"},
    {"dance", "dance|waltz|whistle|hum|hop|giggle|juggle|snore|dream|yodel|march|wiggle|twirl|play|paint|knit|skate"},
    {"looked", "looked|peeked|searched|stared|peered|dug|crawled|glanced|sniffed|poked|rummaged|felt"},
    {"under", "under|behind|beside|below|inside|near|beneath|above|around|on top of|next to"},
    {"sitting",
     "sitting|sleeping|snoring|singing|humming|resting|knitting|dancing|reading|whistling|yawning|smiling|waiting|"
     "standing|lying"},
    {"laughed", "laughed|giggled|smiled|grinned|chuckled|cheered|clapped|beamed|blushed|nodded|winked|bowed|cackled"},
    {"hugged", "hugged|kissed|polished|patted|tickled|squeezed|washed|dusted|thanked|petted|brushed"},
    {"said",
     "said|cried|called|shouted|yelled|sang|whispered|mumbled|muttered|murmured|answered|replied|announced|"
     "declared|explained|grumbled|sighed|laughed|giggled|squeaked|growled|roared|croaked|chirped|hummed|whistled|"
     "sobbed|boasted|exclaimed|insisted"},
    {"whispered", "whispered|mumbled|murmured|hissed|breathed|confessed|admitted"},
    {"brought", "brought|carried|dragged|pulled|pushed|rolled|dropped|delivered|threw|lifted"},
    {"dug", "dug|scraped|scooped|clawed|shoveled|poked|drilled|punched"},
    {"cry", "cry|sob|weep|sniffle|wail|howl|moan|pout"},
    {"manner",
     "softly|gently|kindly|proudly|bravely|boldly|shyly|slowly|quickly|quietly|loudly|sadly|gladly|happily|"
     "merrily|cheerfully|carefully|carelessly|politely|rudely|calmly|nervously|eagerly|sleepily|lazily|wisely|"
     "foolishly|secretly|suddenly|sweetly|bitterly|warmly|coldly|brightly|darkly|seriously|playfully|gracefully|"
     "clumsily|patiently|hopefully|thankfully|solemnly|dreamily|greedily|grandly|neatly|madly|wildly|badly|"
     "backwards|twice|thrice|upside down|all day|on tiptoe|with a bow|with a grin|in a rush|for an hour"},
    {"manner2",
     "faster|slower|sideways|uphill|downhill|blindfolded|barefoot|underground|overhead|in circles|in zigzags|"
     "on stilts"},
    {"pop", "pop|bang|boom|crash|thud|splash|plop|zap|whoosh|ding|clang|creak|squeak|honk|toot|puff|rattle|crunch|snap|"
            "fizz"},
    {"pop2", "bump|thump|clunk|crack|drip|swish|hiss|buzz|boing|splat"},
    {"felt_bad", "{hero:he} felt {feeling}|all {hero:he} found was {food}|that made {hero:him} {feeling}|"
                 "it was full of {critter}s"},
};
const int n_corpus_source = (int)(sizeof corpus_source / sizeof *corpus_source);
