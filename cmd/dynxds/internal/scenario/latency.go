package scenario

import (
	"math"
	"time"
)

// Latencies are counted in buckets whose bounds grow by latencyGrowth from
// shortestLatency on, so that memory does not grow with the number of RPCs and
// a quantile is off by at most that factor.
const (
	shortestLatency = time.Microsecond
	latencyGrowth   = 1.05
	latencyBuckets  = 400 // up to about five minutes
)

// latencies is a histogram of durations.
type latencies struct {
	buckets [latencyBuckets]int
	n       int
}

func (l *latencies) add(d time.Duration) {
	bucket := 0
	if d > shortestLatency {
		bucket = int(math.Log(float64(d)/float64(shortestLatency)) / math.Log(latencyGrowth))
	}
	l.buckets[min(bucket, latencyBuckets-1)]++
	l.n++
}

// quantile returns the upper bound of the bucket that q, from 0 to 1, falls
// into, 0 if nothing was added.
func (l *latencies) quantile(q float64) time.Duration {
	rank := int(math.Ceil(q * float64(l.n)))
	for i, n := range l.buckets {
		if rank -= n; rank <= 0 && l.n > 0 {
			return time.Duration(float64(shortestLatency) * math.Pow(latencyGrowth, float64(i+1)))
		}
	}
	return 0
}
