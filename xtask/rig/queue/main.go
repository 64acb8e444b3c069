// The work of gc-queue/benches/work, done by client-go's work queue: the same items, the same numbers of them, in the
// same order. `cargo xtask bench --rows queue` builds both and runs them in turns.
//
// The argument names the work; the answer is nanoseconds for each item. The queue counts and measures for /metrics, by
// the same provider as in kube-controller-manager; with "bare-" before the work's name it does not, and neither does
// ours.
package main

import (
	"fmt"
	"math/bits"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	_ "k8s.io/component-base/metrics/prometheus/workqueue" // Sets the provider of metrics.
)

const million = 1_000_000

// item is 16 bytes, as a UID is.
type item [2]uint64

type queue = workqueue.TypedRateLimitingInterface[item]

// numbered gives items as they are: random, so that nothing profits from their order.
func numbered(number uint64) item {
	const high, low = 0x9e3779b97f4a7c15, 0xf39cc0605cedc835
	carry, product := bits.Mul64(number+1, low)
	return item{product, carry + (number+1)*high}
}

// name makes the queue measure.
var name = "speed"

func newQueue() queue {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[item](time.Millisecond, time.Second)
	config := workqueue.TypedRateLimitingQueueConfig[item]{Name: name}
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, config)
}

func alone() uint64 {
	q := newQueue()
	for number := uint64(0); number < million; number++ {
		q.Add(numbered(number % 100))
		got, _ := q.Get()
		q.Done(got)
	}
	return million
}

func duplicates() uint64 {
	q := newQueue()
	for round := 0; round < million/1000; round++ {
		for number := uint64(0); number < 1000; number++ {
			q.Add(numbered(number % 100))
		}
		for q.Len() > 0 {
			got, _ := q.Get()
			q.Add(got)
			q.Done(got)
			got, _ = q.Get()
			q.Done(got)
		}
	}
	return million
}

func fillAndDrain() uint64 {
	q := newQueue()
	for number := uint64(0); number < million; number++ {
		q.Add(numbered(number))
	}
	for q.Len() > 0 {
		got, _ := q.Get()
		q.Done(got)
	}
	return million
}

func contended() uint64 {
	const each = million / 20
	q := newQueue()
	var workers sync.WaitGroup
	for worker := uint64(0); worker < 20; worker++ {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for number := uint64(0); number < each; number++ {
				q.Add(numbered(worker*each + number))
				got, _ := q.Get()
				q.Done(got)
			}
		}()
	}
	workers.Wait()
	return million
}

const delayed = 200_000

func rateLimited() uint64 {
	q := newQueue()
	for number := uint64(0); number < delayed; number++ {
		q.AddRateLimited(numbered(number))
	}
	for range delayed {
		got, _ := q.Get()
		q.Forget(got)
		q.Done(got)
	}
	return delayed
}

func after() uint64 {
	q := newQueue()
	for number := uint64(0); number < delayed; number++ {
		some := numbered(number)
		q.AddAfter(some, time.Millisecond+time.Duration(some[0]%4_000_000))
	}
	for range delayed {
		got, _ := q.Get()
		q.Done(got)
	}
	return delayed
}

func main() {
	work := map[string]func() uint64{
		"alone": alone, "duplicates": duplicates, "million": fillAndDrain, "contended": contended,
		"rate-limited": rateLimited, "after": after,
	}
	asked := strings.Join(os.Args[1:], " ")
	if bare, isBare := strings.CutPrefix(asked, "bare-"); isBare {
		asked, name = bare, ""
	}
	if work[asked] == nil {
		fmt.Fprintln(os.Stderr, "usage: queue [bare-]WORK")
		os.Exit(2)
	}
	start := time.Now()
	items := work[asked]()
	fmt.Printf("%.1f\n", float64(time.Since(start).Nanoseconds())/float64(items))
}
