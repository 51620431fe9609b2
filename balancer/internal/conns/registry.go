package conns

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynxds/dynxds/internal/clustertls"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/tlsadvice"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Setup says how the connections of a part of the tree are made.
type Setup struct {
	Pool *Pool
	// TLS has the credentials of clusters that ask for their connections to be secured.
	TLS *clustertls.Pool
	// Bundle makes the connections. nil: they have the credentials of the channel, and no proxies.
	Bundle *clustertls.Bundle
	// Recorded says that a stats handler of the channel takes metrics. Otherwise nothing is
	// recorded, and connections and policies have no labels for it.
	Recorded bool
	// NoHealthChecks says that the channel was dialled with grpc.WithDisableHealthCheck.
	NoHealthChecks bool
	// Cluster is the name of the cluster that this part of the tree serves: the label
	// grpc.lb.backend_service (gRFC A89). It is empty above the clusters.
	Cluster string
	// ResolveNow requests another look-up of the addresses of endpoints. It does not block, and is called on the
	// goroutine of Pool.post. It is nil if nothing is looked up.
	ResolveNow func()
}

// Resolve calls ResolveNow, if there is one.
func (s *Setup) Resolve() {
	if s.ResolveNow != nil {
		s.ResolveNow()
	}
}

// Registry has the Records of one cluster.
type Registry struct {
	*Setup
	changed func()

	// records has the Records by address. Picks read it without a lock; it is written with Pool.mu held.
	records sync.Map
	// sessions says that an RPC of a session has asked for an endpoint. Clusters without sessions call changed for none.
	sessions atomic.Bool

	// The rest is guarded by Pool.mu.

	config Config
	round  uint64 // counts the updates
}

// Record is what is known of one address. It exists while an endpoint of the
// configuration has the address, or while there is a connection to it.
type Record struct {
	// Address is "host:port".
	Address string
	// requested is set by a pick that asks for a connection, until that has been dealt with.
	requested atomic.Bool

	// endpoint is the last one at the address, before the first an empty one, and at is where it is.
	endpoint atomic.Pointer[xdsresource.Endpoint]
	at       atomic.Pointer[place]
	health   atomic.Pointer[Health]
	// addresses are all addresses of the endpoint, separated by commas, that of the Record first. It is nil while the
	// configuration does not have the address.
	addresses atomic.Pointer[string]
	// allowed says that override_host_status has the health status of the endpoint.
	allowed atomic.Bool
	conn    atomic.Pointer[Conn] // the best connection to the address, or nil
	used    atomic.Int64         // the last time that a session used it, in Unix nanoseconds

	// The rest is guarded by Pool.mu.

	conns []*Conn
	// failure is the last error of a connection, nil if there was none; failed is its time.
	failure error
	failed  time.Time
	shown   tlsadvice.Server
	round   uint64 // the last update with the address
}

// place is where endpoints are. It is immutable.
type place struct {
	locality *xdsresource.Locality // nil: in none
	load     *load.Locality        // counts RPCs for load reports; nil: the load is not reported
	once     sync.Once
	labels   map[string]string // of RPCs, made once; see Conn.LocalityLabels
}

func (p *place) label() {
	if p.locality != nil {
		p.labels = map[string]string{"grpc.lb.locality": LocalityName(p.locality.ID)}
	}
}

// Config is what is known of a cluster's endpoints. The Registry keeps it.
type Config struct {
	Localities []xdsresource.Locality
	// HealthOf returns the Health of an endpoint, nil if outlier detection does not watch it. nil: there is none.
	HealthOf func(*xdsresource.Endpoint) *Health
	// HealthCheck says how endpoints are asked for their health. nil: not at all.
	HealthCheck *xdsresource.HealthCheck
	// Loads counts RPCs for load reports. nil: the load of the cluster is not reported.
	Loads *load.Cluster
	// Sessions says which endpoints sessions may use.
	Sessions xdsresource.Sessions
}

// Key identifies an endpoint by its addresses, in whatever order (gRFC A61, "Address List
// Updates in Petiole Policies").
func Key(e *xdsresource.Endpoint) string {
	if len(e.Additional) == 0 {
		return e.Address
	}
	addresses := append([]string{e.Address}, e.Additional...)
	slices.Sort(addresses)
	return strings.Join(addresses, " ")
}

// NewRegistry returns an empty Registry. changed is called when sessions that wait for a
// connection should look again, from any goroutine. It must not block.
func NewRegistry(s *Setup, changed func()) *Registry {
	return &Registry{Setup: s, changed: changed, round: 1}
}

// record returns the Record of an address, nil if there is none. It takes no lock.
func (r *Registry) record(address string) *Record {
	rec, _ := r.records.Load(address)
	found, _ := rec.(*Record)
	return found
}

// all calls yield for each Record.
func (r *Registry) all(yield func(*Record) bool) {
	r.records.Range(func(_, rec any) bool { return yield(rec.(*Record)) })
}

// recordLocked returns the Record of an address, which it makes if there is none.
func (r *Registry) recordLocked(address string) *Record {
	rec := r.record(address)
	if rec == nil {
		rec = &Record{Address: address}
		rec.endpoint.Store(new(xdsresource.Endpoint))
		rec.at.Store(&place{load: r.config.Loads.Elsewhere()})
		r.records.Store(address, rec)
	}
	return rec
}

// Update replaces the configuration. It allocates for each locality, and for the endpoints that differ from those
// before.
func (r *Registry) Update(c Config) {
	ids := make([]load.LocalityID, len(c.Localities))
	for i := range c.Localities {
		ids[i] = c.Localities[i].ID
	}
	loads := c.Loads.Localities(ids)
	r.Pool.mu.Lock()
	before := r.config.HealthCheck
	r.config = c
	if (before == nil) != (c.HealthCheck == nil) || before != nil && *before != *c.HealthCheck {
		for rec := range r.all {
			for _, c := range rec.conns {
				c.recheckLocked()
			}
		}
	}
	r.round++
	for i := range c.Localities {
		at := &place{locality: &c.Localities[i], load: loads[i]}
		for j := range c.Localities[i].Endpoints {
			e := &c.Localities[i].Endpoints[j]
			var health *Health
			if c.HealthOf != nil {
				health = c.HealthOf(e)
			}
			r.setLocked(e.Address, e, at, health)
			for _, address := range e.Additional {
				r.setLocked(address, e, at, health)
			}
		}
	}
	for rec := range r.all {
		if rec.round != r.round {
			r.unsetLocked(rec)
		}
	}
	r.Pool.unlock()
	r.notify()
}

// setLocked sets what the configuration has for an address.
func (r *Registry) setLocked(address string, e *xdsresource.Endpoint, at *place, health *Health) {
	rec := r.recordLocked(address)
	rec.round = r.round
	rec.at.Store(at)
	before := rec.endpoint.Swap(e)
	if rec.addresses.Load() == nil || before.Address != e.Address || !slices.Equal(before.Additional, e.Additional) {
		rec.addresses.Store(joinAddresses(e, &rec.Address))
	}
	if allowed := r.config.Sessions.Statuses.Has(e.Health); rec.allowed.Load() != allowed {
		rec.allowed.Store(allowed)
	}
	if before.Proxy != e.Proxy || !rec.allowed.Load() {
		rec.reviewLocked()
	}
	rec.setHealthLocked(health)
}

// unsetLocked is for a Record that the configuration does not need any more. Its connections, if any, are
// about to be closed; until then RPCs have the old hostname, and count for the old
// locality.
func (r *Registry) unsetLocked(rec *Record) {
	rec.setHealthLocked(nil)
	rec.addresses.Store(nil)
	rec.used.Store(0)
	rec.reviewLocked()
	if rec.at.Load().locality == nil { // A policy has made the address up.
		rec.at.Store(&place{load: r.config.Loads.Elsewhere()})
	}
	if len(rec.conns) == 0 {
		r.records.CompareAndDelete(rec.Address, rec)
	}
}

func (rec *Record) setHealthLocked(h *Health) {
	before := rec.health.Load()
	if before == h {
		return
	}
	rec.health.Store(h)
	if before.Ejected() != h.Ejected() {
		rec.reportHealthLocked()
	}
}

// addLocked adds c to the connections to its address.
func (r *Registry) addLocked(c *Conn) {
	rec := r.recordLocked(c.address)
	c.record, c.proxy = rec, rec.endpoint.Load().Proxy
	rec.conns = append(rec.conns, c)
	rec.refresh()
}

// removeLocked removes c from the connections of its Record, and the Record if nothing
// else needs it.
func (r *Registry) removeLocked(c *Conn) {
	rec := c.record
	rec.conns = slices.DeleteFunc(rec.conns, func(other *Conn) bool { return other == c })
	if len(rec.conns) == 0 && rec.round != r.round {
		r.records.CompareAndDelete(rec.Address, rec)
	}
	rec.refresh()
}

// Describe adds to the description of an endpoint what is known of the connections to its
// addresses: the best one, and the last error of any.
func (r *Registry) Describe(d *inspect.Endpoint) {
	r.Pool.mu.Lock()
	defer r.Pool.unlock()
	var best *Conn
	for _, address := range d.Addresses {
		rec := r.record(address)
		if rec == nil {
			continue
		}
		if rec.failure != nil && rec.failed.After(d.ErrorTime) {
			d.Error, d.ErrorTime = rec.failure.Error(), rec.failed
		}
		for _, c := range rec.conns {
			if best == nil || rank(c.connectivity()) > rank(best.connectivity()) {
				best = c
			}
		}
	}
	if best == nil {
		return
	}
	d.State, d.Since = inspect.State(best.connectivity().String()), best.since
	if best.check != nil {
		d.HealthCheck = best.check.answer
	}
	if len(d.Addresses) > 1 {
		d.Connected = best.address
	}
}
