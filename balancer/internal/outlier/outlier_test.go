package outlier_test

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/balancer/internal/outlier"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a Detector over endpoints "0" to "n-1" with one connection each,
// in a synctest bubble.
type fixture struct {
	t        testing.TB
	loop     *tree.Loop
	registry *conns.Registry
	cc       *lbtest.ClientConn
	detector *outlier.Detector
	conns    []*lbtest.User
}

// test runs a test of n endpoints in a synctest bubble.
func test(t *testing.T, n int, run func(f *fixture)) {
	lbtest.Subtest(func(t testing.TB) *fixture { return newFixture(t, n) }, func(_ *testing.T, f *fixture) { run(f) })(t)
}

func newFixture(t testing.TB, n int) *fixture {
	f := &fixture{t: t, loop: tree.NewLoop(func() {}), registry: lbtest.NewRegistry()}
	f.cc = lbtest.NewClientConn(lbtest.NewNetwork())
	f.cc.Meter = new(lbtest.Meter)
	target := resolver.Target{URL: url.URL{Scheme: "xds", Path: "/service"}}
	f.detector = outlier.New(&tree.Env{
		Loop: f.loop, Endpoints: f.registry, ClientConn: f.cc, Setup: conns.Setup{Cluster: "backend", Recorded: true},
		Options: balancer.BuildOptions{Target: target},
	})
	for i := range n {
		f.conns = append(f.conns, lbtest.NewUser(f.registry, connectivity.Ready, fmt.Sprint(i)))
	}
	t.Cleanup(func() { f.loop.Do(f.detector.Close) })
	return f
}

func numbered(n int) []xdsresource.Locality {
	l := xdsresource.Locality{}
	for i := range n {
		l.Endpoints = append(l.Endpoints, xdsresource.Endpoint{Address: fmt.Sprint(i)})
	}
	return []xdsresource.Locality{l}
}

func (f *fixture) update(c *xdsresource.OutlierDetection) {
	f.updateTo(c, numbered(len(f.conns)))
}

func (f *fixture) updateTo(c *xdsresource.OutlierDetection, l []xdsresource.Locality) {
	f.use(c, l, nil)
}

// use is updateTo with a subset of the endpoints in use.
func (f *fixture) use(c *xdsresource.OutlierDetection, l []xdsresource.Locality, used map[string]bool) {
	f.loop.Do(func() {
		f.registry.Update(conns.Config{Localities: l, Health: f.detector.Update(c, l, used)})
	})
}

// rpcs has RPCs end on a connection.
func (f *fixture) rpcs(i, succeeded, failed int) {
	for range succeeded {
		f.conns[i].Count(balancer.DoneInfo{BytesReceived: true})
	}
	for range failed {
		f.conns[i].Count(balancer.DoneInfo{Err: errors.New("failed")})
	}
}

func (f *fixture) ejected() []int {
	synctest.Wait()
	list := []int{}
	for i, c := range f.conns {
		if c.Ejected() {
			list = append(list, i)
		}
	}
	return list
}

func (f *fixture) expect(when string, want ...int) {
	f.t.Helper()
	if got := f.ejected(); !slices.Equal(got, want) {
		f.t.Errorf("%s: endpoints %v are ejected, want %v", when, got, want)
	}
}

func base() *xdsresource.OutlierDetection {
	return &xdsresource.OutlierDetection{
		Interval: 10 * time.Second, BaseEjectionTime: 30 * time.Second, MaxEjectionTime: 300 * time.Second, MaxEjectionPercent: 50,
	}
}

func successRate() *xdsresource.OutlierDetection {
	c := base()
	c.SuccessRate = &xdsresource.SuccessRateEjection{StdevFactor: 1900, EnforcementPercentage: 100, MinimumHosts: 5, RequestVolume: 100}
	return c
}

func failurePercentage() *xdsresource.OutlierDetection {
	c := base()
	c.FailurePercentage = &xdsresource.FailurePercentageEjection{Threshold: 85, EnforcementPercentage: 100, MinimumHosts: 5, RequestVolume: 50}
	return c
}

// calls is how RPCs on one endpoint end within an interval.
type calls struct{ succeeded, failed int }

func good(n int) []calls { return slices.Repeat([]calls{{100, 0}}, n) }

// gRFC A50, "Success Rate Algorithm" and "Failure Percentage Algorithm".
func TestWhoIsEjected(t *testing.T) {
	t.Parallel()
	with := func(c *xdsresource.OutlierDetection, edit func(*xdsresource.OutlierDetection)) *xdsresource.OutlierDetection {
		edit(c)
		return c
	}
	for _, tc := range []struct {
		name   string
		config *xdsresource.OutlierDetection
		calls  []calls
		want   []int
	}{
		{"success rate: one far below the mean", successRate(), append(good(9), calls{50, 50}), []int{9}},
		{"success rate: all the same", successRate(), slices.Repeat([]calls{{50, 50}}, 10), nil},
		{"success rate: not far enough", with(successRate(), func(c *xdsresource.OutlierDetection) { c.SuccessRate.StdevFactor = 3100 }),
			append(good(9), calls{0, 100}), nil}, // (mean - rate) / deviation is 3
		{"success rate: just far enough", with(successRate(), func(c *xdsresource.OutlierDetection) { c.SuccessRate.StdevFactor = 2900 }),
			append(good(9), calls{0, 100}), []int{9}},
		{"success rate: at the threshold", with(successRate(), func(c *xdsresource.OutlierDetection) { c.SuccessRate.StdevFactor = 3000 }),
			append(good(9), calls{0, 100}), nil},
		{"success rate: at the threshold, by rates that are no binary fractions", with(successRate(), func(c *xdsresource.OutlierDetection) {
			c.SuccessRate.StdevFactor, c.SuccessRate.RequestVolume = 1000, 10
		}), slices.Repeat([]calls{{90, 10}, {70, 30}}, 3), nil},
		{"success rate: all the same, at the mean", with(successRate(), func(c *xdsresource.OutlierDetection) {
			c.SuccessRate.StdevFactor, c.SuccessRate.RequestVolume = 0, 10
		}), slices.Repeat([]calls{{9, 1}, {90, 10}, {63, 7}}, 2), nil},
		{"success rate: too few RPCs on the outlier", successRate(), append(good(9), calls{0, 99}), nil},
		{"success rate: too few endpoints with RPCs", successRate(), append(good(3), calls{0, 100}), nil},
		{"success rate: endpoints without RPCs count for nothing", successRate(), append(good(6), calls{0, 100}, calls{}, calls{}), []int{6}},
		{"success rate: not enforced", with(successRate(), func(c *xdsresource.OutlierDetection) { c.SuccessRate.EnforcementPercentage = 0 }),
			append(good(9), calls{0, 100}), nil},
		{"failure percentage: above the threshold", failurePercentage(), append(good(4), calls{14, 86}), []int{4}},
		{"failure percentage: at the threshold", failurePercentage(), append(good(4), calls{15, 85}), nil},
		{"failure percentage: at 30, which is no binary fraction", with(failurePercentage(), func(c *xdsresource.OutlierDetection) {
			c.FailurePercentage.Threshold, c.FailurePercentage.RequestVolume, c.MaxEjectionPercent = 30, 10, 100
		}), []calls{{7, 3}, {7, 3}, {70, 30}, {6, 4}, {699, 301}}, []int{3, 4}},
		{"failure percentage: all RPCs, at 100", with(failurePercentage(), func(c *xdsresource.OutlierDetection) { c.FailurePercentage.Threshold = 100 }),
			slices.Repeat([]calls{{0, 100}}, 6), nil},
		{"failure percentage: too few RPCs", failurePercentage(), append(good(5), calls{0, 49}), nil},
		{"failure percentage: too few endpoints", failurePercentage(), append(good(3), calls{0, 100}), nil},
		{"failure percentage: independent of the others", failurePercentage(), slices.Repeat([]calls{{0, 100}}, 6), []int{0, 1, 2}},
		{"at most a share of the endpoints", with(failurePercentage(), func(c *xdsresource.OutlierDetection) { c.MaxEjectionPercent = 34 }),
			slices.Repeat([]calls{{0, 100}}, 6), []int{0, 1, 2}},
		{"one at least, however small the share", with(failurePercentage(), func(c *xdsresource.OutlierDetection) { c.MaxEjectionPercent = 1 }),
			slices.Repeat([]calls{{0, 100}}, 6), []int{0}},
		{"none at 0 percent", with(failurePercentage(), func(c *xdsresource.OutlierDetection) { c.MaxEjectionPercent = 0 }),
			slices.Repeat([]calls{{0, 100}}, 6), nil},
		{"no algorithm", nil, slices.Repeat([]calls{{0, 100}}, 6), nil},
		{"neither algorithm divides by nothing", with(successRate(), func(c *xdsresource.OutlierDetection) {
			c.SuccessRate.RequestVolume, c.SuccessRate.MinimumHosts = 0, 0
			c.FailurePercentage = &xdsresource.FailurePercentageEjection{EnforcementPercentage: 100}
		}), make([]calls, 6), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			test(t, len(tc.calls), func(f *fixture) {
				f.update(tc.config)
				for i, c := range tc.calls {
					f.rpcs(i, c.succeeded, c.failed)
				}
				time.Sleep(10*time.Second - 1)
				f.expect("before the end of the interval")
				time.Sleep(time.Nanosecond)
				f.expect("at the end of the interval", tc.want...)
				for i, c := range f.conns {
					if n, want := c.Health.Load(), map[bool]int64{true: 1}[slices.Contains(tc.want, i)]; n != want {
						t.Errorf("connection %d was notified %d times, want %d", i, n, want)
					}
				}
			})
		})
	}
}

// The chance of an ejection is the enforcement percentage.
func TestEnforcementPercentage(t *testing.T) {
	const n = 1000
	test(t, n, func(f *fixture) {
		c := failurePercentage()
		c.MaxEjectionPercent, c.FailurePercentage.EnforcementPercentage = 100, 30
		f.update(c)
		for i := range n {
			f.rpcs(i, 0, 50)
		}
		time.Sleep(10 * time.Second)
		ejected := len(f.ejected())
		xdstest.CheckShares(t, "ejected, not ejected", []int{ejected, n - ejected}, 0.3, 0.7)
	})
}

// failOnly has RPCs end in the interval that begins now.
func (f *fixture) failOnly(i int) {
	synctest.Wait()
	for j := range f.conns {
		if j != i {
			f.rpcs(j, 100, 0)
		}
	}
	f.rpcs(i, 0, 100)
}

// gRFC A61, "Outlier Detection": an endpoint is its set of addresses.
func TestEndpointsWithSeveralAddresses(t *testing.T) {
	test(t, 7, func(f *fixture) {
		dual := func(first, second string, others int) []xdsresource.Locality {
			l := numbered(others)
			l[0].Endpoints = append(l[0].Endpoints, xdsresource.Endpoint{Address: first, Additional: []string{second}})
			return l
		}
		set := func(l []xdsresource.Locality) { f.updateTo(failurePercentage(), l) }
		set(dual("5", "6", 5))
		for i := range 5 {
			f.rpcs(i, 50, 0)
		}
		f.rpcs(5, 0, 25)
		f.rpcs(6, 0, 25)
		time.Sleep(10 * time.Second)
		f.expect("RPCs on both addresses count together", 5, 6)
		set(dual("6", "5", 5))
		f.expect("the same addresses in another order", 5, 6)
		set(numbered(6))
		f.expect("another endpoint at the same address")
		set(dual("5", "6", 5))
		f.expect("and back")
	})
}

func TestRemovedEndpointIsForgotten(t *testing.T) {
	test(t, 6, func(f *fixture) {
		f.update(failurePercentage())
		f.failOnly(5)
		time.Sleep(10 * time.Second)
		f.expect("ejected", 5)
		f.updateTo(failurePercentage(), numbered(5))
		f.expect("removed")
		f.rpcs(5, 0, 100) // on a connection that lingers
		sick := numbered(6)
		sick[0].Endpoints[5].Health = xdsresource.HealthUnhealthy
		f.updateTo(failurePercentage(), sick)
		f.expect("unhealthy")
		f.update(failurePercentage())
		f.expect("back")
		late := lbtest.NewUser(f.registry, connectivity.Ready, "5")
		f.failOnly(5)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if !late.Ejected() {
			t.Error("a connection made later does not know that its endpoint is ejected")
		}
	})
}

// max_ejection_percent is of the endpoints in use: of ten, of which a subset of four is used, 50% are two.
func TestMaxEjectionPercentIsOfTheSubset(t *testing.T) {
	test(t, 10, func(f *fixture) {
		c := failurePercentage()
		c.FailurePercentage.MinimumHosts = 1
		interval := func() {
			for i := range f.conns {
				if i < 4 || i == 9 { // Endpoint 9 has RPCs of a session.
					f.rpcs(i, 0, 100)
				}
			}
			time.Sleep(10 * time.Second)
		}
		used := map[string]bool{"0": true, "1": true, "2": true, "3": true}
		f.use(c, numbered(10), used)
		interval()
		f.expect("in a subset of 4 of 10", 0, 1)
		// The subset becomes larger, and then all endpoints are in use.
		used["4"], used["5"] = true, true
		f.use(c, numbered(10), used)
		interval()
		f.expect("in a subset of 6 of 10", 0, 1, 2)
		f.use(c, numbered(10), nil)
		interval()
		f.expect("all are in use", 0, 1, 2, 3, 9)
	})
}
