"""The text a model is diagnosed on where none is given: sentences of arithmetic, a number in each."""

from __future__ import annotations

from pathlib import Path

from numsft.errors import UserError

ARITHMETIC = """\
7 + 5 = 12, and 12 - 5 = 7.
The sum of 38 and 27 is 65.
Anna has 14 apples and buys 9 more, so she has 23 apples.
A box holds 24 eggs, and 6 boxes hold 144 eggs.
81 divided by 9 is 9.
15 times 4 is 60, and half of that is 30.
The train leaves at 9 and arrives 3 hours later, at 12.
A ticket costs 12.50 dollars, so 4 tickets cost 50.00 dollars.
0.5 plus 0.25 is 0.75.
3.2 times 10 is 32.0.
If 5 pens cost 10 dollars, then 8 pens cost 16 dollars.
The difference between 100 and 37 is 63.
A farmer sells 250 kilograms of rice and keeps 75, out of 325 kilograms.
2 + 2 = 4, 4 + 4 = 8, 8 + 8 = 16, 16 + 16 = 32.
The average of 10, 20 and 30 is 20.
A rectangle of 8 by 6 metres has an area of 48 square metres.
Its perimeter is 2 times 14, which is 28 metres.
9 squared is 81, and the square root of 144 is 12.
1000 grams are 1 kilogram, so 2500 grams are 2.5 kilograms.
There are 60 minutes in an hour and 24 hours in a day, which makes 1440 minutes.
20 percent of 350 is 70.
Tom saves 15 dollars a week, and after 12 weeks he has 180 dollars.
A shirt of 40 dollars is reduced by 25 percent, so it costs 30 dollars.
6.4 minus 1.9 is 4.5.
99 + 1 = 100, and 999 + 1 = 1000.
The product of 12 and 11 is 132.
17 is a prime number, but 18 is 2 times 9.
A car drives 180 kilometres in 3 hours, so its speed is 60 kilometres an hour.
With 7 litres for 100 kilometres, it needs 21 litres for 300 kilometres.
Three friends share 45 dollars equally, and each one gets 15 dollars.
Counting by fives: 5, 10, 15, 20, 25, 30, 35, 40.
Counting down: 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0.
0.1 + 0.2 = 0.3, and 1.1 + 2.2 = 3.3.
1 divided by 8 is 0.125.
A book has 320 pages, and Maria has read 128, so 192 pages are left.
A dozen is 12, so 5 dozen are 60.
The temperature rises from 18.5 to 21.0 degrees, which is 2.5 degrees.
54 - 19 = 35, and 35 + 19 = 54.
123 + 456 = 579.
1234 + 4321 = 5555.
25 times 25 is 625.
Let x = 6. Then 3x + 4 = 22.
If 2y = 18, then y = 9.
A loan of 2000 dollars at 5 percent costs 100 dollars of interest a year.
The school has 18 classes of 25 pupils, which makes 450 pupils.
From 1998 to 2023 it is 25 years.
A quarter of 200 is 50, and three quarters are 150.
48 cookies in bags of 8 fill 6 bags.
A pool of 3600 litres fills at 40 litres a minute, so it takes 90 minutes.
7.25 rounded to one decimal is 7.3.
Pi is about 3.14159, and twice that is about 6.28318.
The bill is 64.80 dollars, and a tip of 10 percent adds 6.48 dollars.
Together that is 71.28 dollars.
A worker earns 18.75 dollars an hour and 150 dollars in 8 hours.
11 + 22 + 33 + 44 = 110.
500 - 125 - 125 = 250.
A bus has 52 seats, and 39 people are on it, so 13 seats are free.
144 / 12 = 12, and 12 / 12 = 1.
2 to the power of 10 is 1024.
He ran 4.8 kilometres on Monday and 5.6 on Tuesday, 10.4 kilometres in all.
"""


def read_rows(file: Path | None) -> list[str]:
    """Return the lines of a UTF-8 text file that are not blank, or of `ARITHMETIC` where `file` is None.

    Raises:
        UserError: If the file cannot be read or is blank.
    """
    if file is None:
        return ARITHMETIC.splitlines()
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"--text {file} is not UTF-8 text ({error.reason} at byte {error.start})") from None
    except OSError as error:
        raise UserError(f"--text {file} cannot be read ({error.strerror}): name a text file") from None
    rows = [line for line in text.splitlines() if line.strip()]
    if not rows:
        raise UserError(f"--text {file} is blank: name a text with numbers in it")
    return rows
