package balancer_test

import (
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
