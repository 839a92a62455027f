"""Places: who waits for one gets one, in the order in which they came."""

import threading
import time

from nanospeech.serve.places import Places


def test_texts_get_places_in_the_order_in_which_they_came_and_none_waits_beside_a_free_one():
    places, came = Places(2), []
    for _ in range(2):
        places.take(lambda: False)

    def work(number: int) -> None:
        places.take(lambda: False)
        came.append(number)

    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(4)]
    for i, thread in enumerate(threads):
        thread.start()
        ends = time.monotonic() + 30
        while len(places.waiting) <= i and time.monotonic() < ends:
            time.sleep(0.001)
    with places.changed:  # two are free, of which the first that waits alone hears
        places.taken -= 2
        places.changed.notify()
    for thread in threads[:2]:
        thread.join(30)
    assert sorted(came) == [0, 1]
    for i in (2, 3):
        with places.changed:  # the later one looks first
            places.taken -= 1
            places.changed._waiters.rotate(1)  # type: ignore[attr-defined]
            places.changed.notify_all()
        threads[i].join(30)
        assert sorted(came) == list(range(i + 1))
