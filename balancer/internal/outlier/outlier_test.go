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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	estats "google.golang.org/grpc/experimental/stats"
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
		f.detector.Update(c, l, used)
		f.registry.Update(conns.Config{Localities: l, HealthOf: f.detector.HealthOf})
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

// An ejection lasts up to max_ejection_time_jitter longer, each time another time.
func TestEjectionJitter(t *testing.T) {
	test(t, 64, func(f *fixture) {
		c := base()
		c.Consecutive5xx = &xdsresource.ConsecutiveEjection{Failures: 1, EnforcementPercentage: 100}
		c.Interval, c.MaxEjectionPercent, c.MaxEjectionTimeJitter = time.Second, 100, 20*time.Second
		f.update(c)
		for i := range f.conns {
			f.conns[i].Count(answered(codes.Internal))
		}
		time.Sleep(30 * time.Second)
		xdstest.Equal(f.t, "ejected of 64 after base_ejection_time", 64, len(f.ejected()))
		time.Sleep(10 * time.Second)
		// That fewer than 10, or more than 54, of 64 drew less than half has a probability of 1e-8.
		if n := len(f.ejected()); n < 10 || n > 54 {
			f.t.Errorf("%d of 64 are ejected after half the jitter", n)
		}
		time.Sleep(12 * time.Second)
		f.expect("after all the jitter")
	})
}

// gRFC A91, "Metric Stability": off by default.
func TestMetricsAreOffByDefault(t *testing.T) {
	for name, unit := range map[string]string{
		"grpc.lb.outlier_detection.ejections_enforced": "{ejection}", "grpc.lb.outlier_detection.ejections_unenforced": "{ejection}",
	} {
		d := estats.DescriptorForMetric(name)
		if d == nil {
			t.Errorf("%s is not registered", name)
		} else if d.Default || d.Unit != unit || d.Type != estats.MetricTypeIntCount {
			t.Errorf("%s is registered as %+v", name, *d)
		}
	}
}
