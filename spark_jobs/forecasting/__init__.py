"""The parts of the forecast.

pending        what `delaybridge export` wrote, checked at the door
occurrences    each pending message, and what follows from it: its later occurrences
crons          the instants at which cron expressions match, by the bridge's own code
minutes        deliveries by destination and minute, and which minutes are peaks
told           what that means, as plain values
screen         the same on one screen of a terminal
"""
