package balancer_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	grpcbalancer "google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// testFailing runs a script whose cluster has n endpoints, an RPC to each of which has failed. run gets what counts the ejected ones.
func testFailing(t *testing.T, n int, outliers string, run func(ejected func() int)) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(t)
		var names []string
		for i := range n {
			names = append(names, strconv.Itoa(i))
		}
		s.step("cluster sessions=UNKNOWN outliers=max-percent:100," + outliers)
		s.step("endpoints z=" + strings.Join(names, ","))
		s.step("calls " + strconv.Itoa(n) + "x0/1")
		run(func() int { return len(strings.Fields(strings.Trim(s.step("ejected"), "[]"))) })
	})
}

// The chance of an ejection is the enforcement percentage.
func TestEnforcementPercentage(t *testing.T) {
	const n = 1000
	testFailing(t, n, "failure:85,volume:1,enforced:30", func(ejected func() int) {
		time.Sleep(10 * time.Second)
		xdstest.CheckShares(t, "ejected, not ejected", []int{ejected(), n - ejected()}, 0.3, 0.7)
	})
}

// An ejection lasts up to max_ejection_time_jitter longer, each time another time.
func TestEjectionJitter(t *testing.T) {
	testFailing(t, 64, "5xx:1,interval:1s,jitter:20s", func(ejected func() int) {
		time.Sleep(30 * time.Second)
		xdstest.Equal(t, "ejected of 64 after base_ejection_time", 64, ejected())
		time.Sleep(10 * time.Second)
		// That fewer than 10, or more than 54, of 64 drew less than half has a probability of 1e-8.
		if n := ejected(); n < 10 || n > 54 {
			t.Errorf("%d of 64 are ejected after half the jitter", n)
		}
		time.Sleep(12 * time.Second)
		xdstest.Equal(t, "ejected after all the jitter", 0, ejected())
	})
}

// gRFC A27, "drop_overloads": each entry drops its share of what those before it leave, in parts of a million. What is dropped is not retried.
func TestDropsInOrderByShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(t)
		s.step("drops lb=200000 throttle=500000")
		s.step("endpoints z=a")
		counts := make(map[string]int)
		for range 100_000 {
			to := s.rpc(backend, new(decision.Extra), false, false)
			if before, _, dropped := strings.Cut(to, ": UNAVAILABLE"); dropped {
				to = before + to[strings.LastIndex(to, " "):]
			}
			counts[to]++
		}
		xdstest.Shares(t, "RPCs", map[string]float64{`(dropped "lb")`: 0.2, `(dropped "throttle")`: 0.4, "a": 0.4}, counts)
	})
}

// Least request with weights: an endpoint at a tenth of its share counts each RPC in flight ten times.
func TestLeastRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(t)
		s.step(`cluster policy=dynxds_slow_start config={"windowNanos":100000000000,"choiceCount":10}`)
		s.step("endpoints z=a,b")
		time.Sleep(100 * time.Second)
		s.step("endpoints z=a,b,c")
		counts, ends := map[string]int{}, map[string][]func(grpcbalancer.DoneInfo){}
		pick := func(n int) {
			for range n {
				to := s.rpc(backend, new(decision.Extra), false, true)
				counts[to]++
				ends[to] = append(ends[to], s.held[len(s.held)-1])
			}
		}
		pick(210)
		// Ten draws of three miss one in 60 times, so that the numbers are near 100, 100 and 10.
		if a, b, c := counts["a"], counts["b"], counts["c"]; min(a, b) < 90 || max(a, b) > 110 || c < 5 || c > 15 {
			t.Errorf("in flight at first are %v", counts)
		}
		time.Sleep(100 * time.Second)
		synctest.Wait()
		pick(90)
		if min(counts["a"], counts["b"], counts["c"]) < 85 {
			t.Errorf("in flight after the window are %v, want 100 each or nearly", counts)
		}
		for _, end := range ends["a"] {
			end(grpcbalancer.DoneInfo{})
		}
		counts, ends["a"] = map[string]int{}, nil
		pick(50)
		s.held = slices.Concat(ends["a"], ends["b"], ends["c"]) // for the end of the script
		if counts["a"] < 45 {
			t.Errorf("with none in flight, a gets %d of 50", counts["a"])
		}
	})
}
