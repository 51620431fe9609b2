package outcomes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/bounds"
)

// The tests share the table of the process, and therefore do not run in parallel.

// looking runs a test on virtual time, a moment after somebody has looked for the first time.
func looking(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(2 * linger) // until what an earlier test has left is over
		turnOff()
		Look()
		time.Sleep(second / 2)
		test(t)
	})
}

// turnOff ends counting, as time does.
func turnOff() {
	table.mu.Lock()
	table.until = time.Unix(0, 1)
	chain := table.chain
	table.mu.Unlock()
	tick(chain)
}

// rpc counts an RPC that takes a while.
func rpc(k Key, takes time.Duration, err error) {
	r := Find(k).Begin()
	time.Sleep(takes)
	r.End(err)
}

// reportOf returns the Report of a Key.
func reportOf(t *testing.T, k Key) *Report {
	t.Helper()
	for _, r := range Reports() {
		if r.Key == k {
			return r
		}
	}
	t.Fatalf("nothing is counted for %+v", k)
	return nil
}

func same(m Minute, started, ended, failed uint64) bool {
	return m.Started == started && m.Ended == ended && m.Failed == failed
}

func failure(code codes.Code) error { return status.Error(code, "because of "+code.String()) }

func TestWhatIsCounted(t *testing.T) {
	looking(t, func(t *testing.T) {
		k := Key{"t", "r", "c"}
		for range 8 {
			rpc(k, 20*time.Millisecond, nil)
		}
		rpc(k, 0, failure(codes.Unavailable))
		rpc(k, 0, failure(codes.NotFound))
		rpc(k, 0, failure(codes.Code(99)))
		rpc(k, 0, context.Canceled) // no status
		Find(k).Begin()
		retried := Find(k).Begin()
		retried.Resent(2, false)
		retried.Resent(3, true)
		once := retried.Once()
		once(nil)
		once(nil)
		RPC{}.End(nil)
		RPC{}.Resent(1, true)
		r := reportOf(t, k)
		want := map[string]uint64{"OK": 9, "UNAVAILABLE": 1, "NOT_FOUND": 1, "other": 1, "UNKNOWN": 1}
		if fmt.Sprint(r.Codes) != fmt.Sprint(want) || r.Started != 14 || r.InFlight != 1 || r.Retries != 2 || r.Hedges != 3 {
			t.Errorf("the report is %+v, want codes %v, 14 started and 1 in flight", r, want)
		}
		// NOT_FOUND is an answer.
		if !same(r.Minute, 14, 13, 3) {
			t.Errorf("the last minute is %+v", r.Minute)
		}
		if r.Last == nil || r.Last.Code != "UNAVAILABLE" || r.Last.Text != "because of Unavailable" {
			t.Errorf("the last error is %+v, want the first one of the second", r.Last)
		}
		time.Sleep(second)
		rpc(k, 0, failure(codes.Internal))
		if r = reportOf(t, k); r.Last.Code != "INTERNAL" || r.Minute.Seconds != 1 || r.FailingSince.IsZero() {
			t.Errorf("a second later the report is %+v with the error %+v", r, r.Last)
		}
	})
}

func TestTheLastMinute(t *testing.T) {
	looking(t, func(t *testing.T) {
		k, other := Key{"t", "r", "c"}, Key{"t", "r2", "c"}
		rpc(k, 0, failure(codes.Unavailable))
		if reportOf(t, k).Minute.P50 != nil {
			t.Error("the latency of a failure is told as that of RPCs that work")
		}
		Find(other)
		time.Sleep(second)
		for range 30 {
			rpc(k, 0, nil)
			rpc(other, 0, nil)
			time.Sleep(second)
		}
		history := func() History {
			return Histories(2, func(k Key) int { return map[string]int{"c": 1}[k.Cluster] })[1]
		}
		h := history()
		if len(h.Started) != 31 || h.Started[0] != 1 || h.Failures[0] != 1 || h.Started[1] != 2 || h.Failures[1] != 0 || h.Started[30] != 2 {
			t.Errorf("the history is %v", h)
		}
		r := reportOf(t, k)
		if !same(r.Minute, 31, 31, 1) || r.Minute.Seconds != 31 || r.FailingSince.IsZero() {
			t.Errorf("the minute is %+v of %d seconds, failing since %v", r.Minute, r.Minute.Seconds, r.FailingSince)
		}
		if ago := time.Since(r.FailedUntil); ago < 29*second || ago > 31*second || r.EndedSince != 30 {
			t.Errorf("the last failure was %v ago, %d RPCs have ended since; want 30 s and 30", ago, r.EndedSince)
		}
		if r := reportOf(t, other); !r.FailedUntil.IsZero() || r.EndedSince != 0 {
			t.Errorf("without a failure: until %v, %d since", r.FailedUntil, r.EndedSince)
		}
		r.Add(reportOf(t, other))
		if !same(r.Minute, 61, 61, 1) || r.Codes["OK"] != 60 || r.Codes["UNAVAILABLE"] != 1 {
			t.Errorf("both are %+v", r)
		}
		time.Sleep(Seconds * second)
		r = reportOf(t, k)
		if r.Minute.P50 != nil || !same(r.Minute, 0, 0, 0) || r.Minute.Seconds != Seconds || !r.FailingSince.IsZero() || r.Started != 31 {
			t.Errorf("a minute later: %+v", r)
		}
		if h := history(); len(h.Failures) != Seconds || h.Started[0] != 0 {
			t.Errorf("a minute later the history is %v", h)
		}
	})
}

// Latencies of a busy second are taken of a part of the RPCs, which changes the quantiles little.
func TestQuantiles(t *testing.T) {
	looking(t, func(t *testing.T) {
		k := Key{Target: "quantiles"}
		for range 20 {
			for i := range 1000 {
				r := Find(k).Begin()
				if r.weight != 0 {
					r.begin -= 10 * time.Millisecond
					if i%50 == 49 || r.weight > 1 && i%400 == 7 { // 2 of 100
						r.begin -= time.Second
					}
				}
				r.End(nil)
			}
			time.Sleep(second)
		}
		r := reportOf(t, k)
		about := func(ms *float64, want float64) bool { return ms != nil && *ms >= want*2/3 && *ms <= want*3/2 }
		if !about(r.Minute.P50, 10) || !about(r.Minute.P99, 1000) {
			t.Errorf("the minute is %+v, want quantiles of about 10 ms and 1 s", r.Minute)
		}
		time.Sleep(45 * time.Second)
		for range 200 {
			rpc(k, 100*time.Microsecond, nil)
		}
		time.Sleep(20 * time.Second)
		if got := reportOf(t, k).Minute.P99; got == nil || *got > 0.2 {
			t.Errorf("the slow RPCs of over a minute ago still count: %v ms", got)
		}
	})
}

func TestBuckets(t *testing.T) {
	for i := range buckets - 1 {
		low, high := lowerBound(i), lowerBound(i+1)
		if high <= low || bucketOf(low) != i || bucketOf(high-1) != i {
			t.Errorf("bucket %d is from %v to %v; these are in buckets %d and %d", i, low, high, bucketOf(low), bucketOf(high-1))
		}
	}
	if bucketOf(time.Hour) != buckets-1 || bucketOf(-1) != 0 {
		t.Error("there is no bucket for everything")
	}
}

func TestOnlyWhileSomebodyLooks(t *testing.T) {
	looking(t, func(t *testing.T) {
		k := Key{Target: "looks"}
		c := Find(k)
		c.Begin()
		for range 3 {
			time.Sleep(linger / 2)
			Look()
		}
		if !On() || c.Gone() {
			t.Fatal("counting has ended although somebody looks")
		}
		time.Sleep(linger + 2*second)
		Refused("looks", failure(codes.Unavailable))
		InFlight("looks", func(Key, int64) { t.Error("an RPC is in flight although nobody looks") })
		if On() || len(Reports()) > 0 {
			t.Error("counting goes on although nobody looks")
		}
		r := Find(k).Begin() // as an RPC that has met the end
		if since := Look(); since != time.Now() || !c.Gone() || len(Reports()) > 0 {
			t.Error("counting does not begin again")
		}
		r.End(nil)
		Refused("looks", failure(codes.Unavailable))
		if r := reportOf(t, k); r.Codes["UNAVAILABLE"] != 1 {
			t.Errorf("an RPC without a configuration is not counted: %+v", r)
		}
		time.Sleep(5*second + second/2)
		if r := reportOf(t, k); r.Minute.Seconds != 5 {
			t.Errorf("%d seconds are measured, want 5: more than one timer ticks, or none", r.Minute.Seconds)
		}
	})
}

func TestKindsAreBounded(t *testing.T) {
	defer func(n int) { maxKinds = n }(maxKinds)
	maxKinds = 100
	looking(t, func(t *testing.T) {
		kind := func(i int) Key { return Key{"t", fmt.Sprint(i), "c"} }
		kept := Find(kind(0))
		for i := range maxKinds + 10 {
			Find(kind(i)).Begin().End(nil)
		}
		late := Find(kind(maxKinds + 1))
		if late.key != others || len(Reports()) != maxKinds+1 {
			t.Errorf("%d kinds, the last one %+v", len(Reports()), late.key)
		}
		open := Find(kind(1)).Begin()
		for range (forgetAfter + 60) / 300 {
			time.Sleep(300 * second)
			Look()
			kept.Begin().End(nil)
		}
		time.Sleep(120 * second)
		if n := len(Reports()); n != 2 || Find(kind(0)) != kept || kept.Gone() || !late.Gone() {
			t.Errorf("%d kinds are left of which 2 are in use, the one in use is kept: %v", n, Find(kind(0)) == kept)
		}
		again := Find(kind(maxKinds + 1))
		if again.key == others {
			t.Error("there is no room although most kinds are not in use any more")
		}
		again.Begin()
		inFlight := make(map[Key]int64)
		InFlight("t", func(k Key, n int64) { inFlight[k] += n })
		if want := (map[Key]int64{kind(1): 1, again.key: 1}); !maps.Equal(inFlight, want) {
			t.Errorf("in flight are %v, want %v", inFlight, want)
		}
		open.End(nil)
	})
}

func TestTextsAreBounded(t *testing.T) {
	looking(t, func(t *testing.T) {
		Refused("long", errors.New(strings.Repeat("x", 1<<20)))
		if r := reportOf(t, Key{Target: "long"}); len(r.Last.Text) > bounds.ErrorText+100 {
			t.Errorf("the last error has %d bytes", len(r.Last.Text))
		}
	})
	for want, r := range map[string]struct{ name, paths string }{
		"name":                                  {"name", "/s/m"},
		"/s/m":                                  {"", "/s/m"},
		strings.Repeat("x", maxRoute):           {strings.Repeat("x", 2*maxRoute), ""},
		"x" + strings.Repeat("é", maxRoute/2-1): {"x" + strings.Repeat("é", maxRoute), ""},
	} {
		if got := RouteLabel(r.name, r.paths); got != want {
			t.Errorf("route %+v has the label %q, want %q", r, got, want)
		}
	}
}

func TestCountingAllocatesNothing(t *testing.T) {
	looking(t, func(t *testing.T) {
		c, err := Find(Key{Target: "allocates"}), failure(codes.Unavailable)
		c.Begin().End(err) // the text of this second
		if n := testing.AllocsPerRun(1000, func() {
			c.Begin().End(nil)
			c.Begin().End(err)
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}

// BenchmarkCounter is what an RPC costs more, but for finding the Counter.
func BenchmarkCounter(b *testing.B) {
	Look()
	c := Find(Key{Target: "bench"})
	b.Run("alone", func(b *testing.B) {
		for b.Loop() {
			c.Begin().End(nil)
		}
	})
	b.Run("exact", func(b *testing.B) { // the first of each second
		for b.Loop() {
			c.base.Store(c.started.Load())
			c.Begin().End(nil)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				c.Begin().End(nil)
			}
		})
	})
}
