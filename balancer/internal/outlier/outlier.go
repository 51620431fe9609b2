// Package outlier ejects endpoints of a cluster that fail more RPCs than others (gRFCs A50,
// A61, A75), or several in a row (Envoy), and counts what it detects (gRFC A91).
//
// Connections tell a Detector how RPCs end. A Detector moves no RPC: policies avoid endpoints whose connections report an ejection. RPCs are
// counted without a lock; all else works on the tree's loop.
package outlier

import (
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Detector watches the endpoints of one cluster, of all its priorities together (gRFC A75).
type Detector struct {
	env *tree.Env

	// config is nil while no algorithm is in use. The ends of RPCs read it.
	config atomic.Pointer[xdsresource.OutlierDetection]
	// endpoints are in the order of the resource. byKey has the same ones.
	endpoints []*endpoint
	byKey     map[string]*endpoint
	// used is the number of endpoints in use, ejected how many of these are ejected.
	used, ejected int

	// timer is pending since started, which is zero while config is nil.
	timer   tree.Timer
	started time.Time
}

// endpoint is one endpoint.
type endpoint struct {
	*conns.Health
	detector *Detector
	// successes and failures count the RPCs that end in this interval; succeeded and failed are the counts of the last interval.
	successes, failures atomic.Uint64
	succeeded, failed   uint64

	lengths [xdsresource.Runs]atomic.Uint32 // of the runs of failures
	key     string                          // in byKey
	// used is false if the endpoint gets RPCs of sessions only, as it is not in the subset (gRFC A68).
	used bool
	// ejectedAt is when it was last ejected, and ejectedBy why. jitter is added to the duration.
	ejectedAt time.Time
	ejectedBy string
	jitter    time.Duration
	// multiplier is the number of ejections less the intervals without one.
	multiplier int
}

// New returns a Detector for the cluster that env is for, which knows what the one before it, if that is not nil, has ejected.
func New(env *tree.Env, before *Detector) *Detector {
	d := &Detector{env: env, byKey: make(map[string]*endpoint)}
	if before == nil {
		return d
	}
	d.started = before.started
	for key, e := range before.byKey {
		one := &endpoint{detector: d, key: key, ejectedAt: e.ejectedAt, ejectedBy: e.ejectedBy, jitter: e.jitter, multiplier: e.multiplier}
		one.Health = conns.NewHealth(one.ended, e.Addresses...)
		env.Endpoints.Eject(one.Health, e.Ejected())
		d.byKey[key] = one
	}
	return d
}

// Update sets the configuration, nil for none, and the endpoints of the cluster. used has the conns.Key of
// those in use, of which MaxEjectionPercent is; nil: all are. Endpoints with the same
// addresses as before keep their Health.
func (d *Detector) Update(config *xdsresource.OutlierDetection, localities []xdsresource.Locality, used map[string]bool) {
	before := d.config.Swap(config)
	if config == nil {
		d.stop()
		return
	}
	d.setEndpoints(localities, used)
	if before != nil && !sameRuns(before, config) {
		for _, e := range d.endpoints {
			e.restartRuns()
		}
	}
	wait := config.Interval
	if d.started.IsZero() {
		d.started = time.Now()
		d.takeCalls()
	} else {
		wait = max(0, wait-time.Since(d.started))
	}
	d.env.Loop.After(&d.timer, wait, d.sweep)
}

// setEndpoints takes in the endpoints, but for those that get no RPCs.
func (d *Detector) setEndpoints(localities []xdsresource.Locality, used map[string]bool) {
	old := d.byKey
	d.byKey, d.endpoints, d.used, d.ejected = make(map[string]*endpoint, len(old)), nil, 0, 0
	for i := range localities {
		for j := range localities[i].Endpoints {
			e := &localities[i].Endpoints[j]
			key := conns.Key(e)
			if !e.Health.Usable() || d.byKey[key] != nil {
				continue
			}
			one := old[key]
			if one == nil {
				one = &endpoint{detector: d, key: key}
				one.Health = conns.NewHealth(one.ended, append([]string{e.Address}, e.Additional...)...)
			}
			d.byKey[key] = one
			d.endpoints = append(d.endpoints, one)
			if one.used = used == nil || used[key]; one.used {
				d.used++
			}
			if one.Ejected() {
				d.countEjected(one, 1)
			}
		}
	}
}

// HealthOf returns the Health of an endpoint, which is nil if that is not watched.
func (d *Detector) HealthOf(e *xdsresource.Endpoint) *conns.Health {
	if one := d.find(e); one != nil {
		return one.Health
	}
	return nil
}

func (d *Detector) find(e *xdsresource.Endpoint) *endpoint {
	if !e.Health.Usable() {
		return nil
	}
	return d.byKey[conns.Key(e)]
}

// stop ends all ejections and forgets the endpoints: clusters without outlier detection must
// not pay for it.
func (d *Detector) stop() {
	d.timer.Stop()
	d.started = time.Time{}
	d.endpoints, d.byKey, d.used, d.ejected = nil, nil, 0, 0
}

// Ejection describes the ejection of an endpoint, or returns nil if it is not ejected.
func (d *Detector) Ejection(e *xdsresource.Endpoint) *inspect.Ejection {
	one := d.find(e)
	if one == nil || !one.Ejected() {
		return nil
	}
	return &inspect.Ejection{
		Since: one.ejectedAt, Until: one.ejectedAt.Add(d.ejectionTime(one)), Method: one.ejectedBy,
	}
}

// Close stops the timer. Nothing is ejected any more.
func (d *Detector) Close() { d.Update(nil, nil, nil) }

func (d *Detector) takeCalls() {
	for _, e := range d.endpoints {
		e.succeeded, e.failed = e.successes.Swap(0), e.failures.Swap(0)
	}
}

// sweep ends an interval.
func (d *Detector) sweep() {
	d.started = time.Now()
	d.takeCalls()
	config := d.config.Load()
	if config.SuccessRate != nil {
		d.ejectBySuccessRate(config.SuccessRate)
	}
	if config.FailurePercentage != nil {
		d.ejectByFailurePercentage(config.FailurePercentage)
	}
	for _, e := range d.endpoints {
		switch {
		case !e.Ejected():
			e.multiplier = max(0, e.multiplier-1)
		case d.started.After(e.ejectedAt.Add(d.ejectionTime(e))):
			d.countEjected(e, -1)
			e.restartRuns()
			d.env.Endpoints.Eject(e.Health, false)
		}
	}
	d.env.Loop.After(&d.timer, config.Interval, d.sweep)
}

func (d *Detector) ejectionTime(e *endpoint) time.Duration {
	config := d.config.Load()
	t := max(config.BaseEjectionTime, config.MaxEjectionTime)
	if config.BaseEjectionTime <= t/time.Duration(e.multiplier) { // The product fits.
		t = config.BaseEjectionTime * time.Duration(e.multiplier)
	}
	return t + min(e.jitter, math.MaxInt64-t)
}

// withVolume returns the endpoints with at least volume RPCs in the interval, none if they are
// fewer than hosts.
func (d *Detector) withVolume(volume, hosts uint32) []*endpoint {
	var enough []*endpoint
	for _, e := range d.endpoints {
		if n := e.succeeded + e.failed; n > 0 && n >= uint64(volume) {
			enough = append(enough, e)
		}
	}
	if uint32(len(enough)) < hosts {
		return nil
	}
	return enough
}

// rounding is more than the error of floating-point arithmetic in a threshold between 0 and 1,
// and less than matters.
const rounding = 1e-9

// ejectBySuccessRate is gRFC A50, "Success Rate Algorithm": an endpoint is ejected if its rate
// is below the threshold. A rate equal to the threshold is not below it, however the threshold
// was rounded.
func (d *Detector) ejectBySuccessRate(c *xdsresource.SuccessRateEjection) {
	enough := d.withVolume(c.RequestVolume, c.MinimumHosts)
	if len(enough) == 0 {
		return
	}
	var sum, squares float64
	for _, e := range enough {
		sum += e.successRate()
	}
	mean := sum / float64(len(enough))
	for _, e := range enough {
		off := e.successRate() - mean
		squares += off * off
	}
	deviation := math.Sqrt(squares / float64(len(enough)))
	threshold := mean - deviation*float64(c.StdevFactor)/1000
	for _, e := range enough {
		if e.successRate() < threshold-rounding {
			d.detected(e, d.started, bySuccessRate, c.EnforcementPercentage)
		}
	}
}

// ejectByFailurePercentage is gRFC A50, "Failure Percentage Algorithm": an endpoint is ejected
// if its percentage is above the threshold. The comment of the proto field says "greater than
// or equal", but gRPC-Go follows the gRFC too.
func (d *Detector) ejectByFailurePercentage(c *xdsresource.FailurePercentageEjection) {
	for _, e := range d.withVolume(c.RequestVolume, c.MinimumHosts) {
		if e.failed*100 > uint64(c.Threshold)*(e.succeeded+e.failed) {
			d.detected(e, d.started, byFailurePercentage, c.EnforcementPercentage)
		}
	}
}

func (e *endpoint) successRate() float64 {
	return float64(e.succeeded) / float64(e.succeeded+e.failed)
}

// full reports whether the maximum number of endpoints in use is ejected.
func (d *Detector) full() bool {
	return d.ejected*100 >= int(d.config.Load().MaxEjectionPercent)*d.used
}

// countEjected counts an ejection or, with -1, its end.
func (d *Detector) countEjected(e *endpoint, n int) {
	if e.used {
		d.ejected += n
	}
}

// detected ejects an outlier, unless too many are ejected already, with the probability
// percentage. One that is ejected already stays as it is.
func (d *Detector) detected(e *endpoint, at time.Time, by string, percentage uint32) {
	switch {
	case e.Ejected():
	case d.full():
		d.count(unenforced, by, "max_ejection_overflow")
	case rand.Uint32N(100) >= percentage:
		d.count(unenforced, by, "enforcement_percentage")
	default:
		d.count(enforced, by)
		d.countEjected(e, 1)
		e.ejectedAt, e.ejectedBy = at, by
		e.jitter = rand.N(min(d.config.Load().MaxEjectionTimeJitter, math.MaxInt64-1) + 1)
		e.multiplier++
		d.env.Endpoints.Eject(e.Health, true)
	}
}
