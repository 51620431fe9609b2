package conns

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dynxds/dynxds/internal/clustertls"
	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/pmap"
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
	kept    func()

	// table has the Records of all addresses of the configuration. It is nil until Track.
	table atomic.Pointer[pmap.Map[*Record]]

	// The rest is guarded by Pool.mu.

	records map[string]*Record
	config  Config
	round   uint64 // counts the updates
	closed  bool
}

// Record is what is known of one address. It exists while an endpoint of the
// configuration has the address, or while there is a connection to it.
type Record struct {
	// Address is "host:port".
	Address string
	// Requested is set by a pick that asks for a connection, until that has been dealt with.
	Requested atomic.Bool

	// endpoint is the last one at the address, before the first an empty one; locality is where it is, before that nil.
	endpoint atomic.Pointer[xdsresource.Endpoint]
	locality atomic.Pointer[xdsresource.Locality]
	health   atomic.Pointer[Health]
	load     atomic.Pointer[load.Locality]
	session  session

	// The rest is guarded by Pool.mu.

	conns []*Conn
	// failure is the last error of a connection, nil if there was none; failed is its time.
	failure error
	failed  time.Time
	shown   tlsadvice.Server
	round   uint64 // the last update with the address
}

func newRecord(address string) *Record {
	rec := &Record{Address: address}
	rec.endpoint.Store(new(xdsresource.Endpoint))
	return rec
}

// Config is what is known of a cluster's endpoints. The Registry keeps it.
type Config struct {
	Localities []xdsresource.Locality
	// Health has one element for each endpoint, in the order of Localities; nil for those
	// that outlier detection does not watch. It is empty without outlier detection.
	Health []*Health
	// HealthCheck says how endpoints are asked for their health. nil: not at all.
	HealthCheck *xdsresource.HealthCheck
	// Loads counts RPCs for load reports. nil: the load of the cluster is not reported.
	Loads *load.Cluster
	// Sessions says which endpoints sessions may use. It has no effect before Track.
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
// connection should look again, kept when a connection is kept for sessions. Both are
// called from any goroutine and must not block.
func NewRegistry(s *Setup, changed, kept func()) *Registry {
	return &Registry{Setup: s, changed: changed, kept: kept, records: make(map[string]*Record), round: 1}
}

// Update replaces the configuration. It allocates only for what differs from the one
// before.
func (r *Registry) Update(c Config) { r.update(c, r.Tracking()) }

// Track makes the endpoints available to sessions, from now on: clusters without sessions
// do not pay for them. It is called after the first Update, on the goroutine of Update.
func (r *Registry) Track() { r.update(r.config, true) }

func (r *Registry) update(c Config, track bool) {
	var loads []*load.Locality
	if c.Loads != nil {
		ids := make([]load.LocalityID, len(c.Localities))
		for i := range c.Localities {
			ids[i] = load.LocalityID(c.Localities[i].ID)
		}
		loads = c.Loads.Localities(ids)
	}
	u := update{registry: r}
	r.Pool.mu.Lock()
	before := r.config.HealthCheck
	r.config = c
	if (before == nil) != (c.HealthCheck == nil) || before != nil && *before != *c.HealthCheck {
		r.recheckLocked()
	}
	r.round++
	if track {
		u.table = r.sessionTable().Edit()
	}
	n := 0
	for i := range c.Localities {
		for j := range c.Localities[i].Endpoints {
			f := facts{Endpoint: &c.Localities[i].Endpoints[j], locality: &c.Localities[i]}
			if c.Health != nil {
				f.health = c.Health[n]
			}
			if c.Loads != nil {
				f.load = loads[i]
			}
			n++
			u.set(f.Address, f)
			for _, address := range f.Additional {
				u.set(address, f)
			}
		}
	}
	for address, rec := range r.records {
		if rec.round != r.round {
			u.remove(address, rec)
		}
	}
	if track {
		table := u.table.Map()
		r.table.Store(&table)
	}
	r.Pool.unlock()
	r.notify()
}

// recheckLocked starts the health check that the cluster has now, or none, for each connection.
func (r *Registry) recheckLocked() {
	for _, rec := range r.records {
		for _, c := range rec.conns {
			c.recheckLocked()
		}
	}
}

// update is one call of Update. Its methods are called with Pool.mu held.
type update struct {
	registry *Registry
	table    *pmap.Builder[*Record] // nil before Track
}

// facts are what the configuration has for an address.
type facts struct {
	*xdsresource.Endpoint
	locality *xdsresource.Locality
	health   *Health
	load     *load.Locality
}

// placeOf returns the endpoint that has an address, an empty one if none has, and its locality or nil.
func (r *Registry) placeOf(address string) (*xdsresource.Endpoint, *xdsresource.Locality) {
	r.Pool.mu.Lock()
	defer r.Pool.unlock()
	if rec := r.records[address]; rec != nil {
		return rec.endpoint.Load(), rec.locality.Load()
	}
	return new(xdsresource.Endpoint), nil
}

func (u *update) set(address string, f facts) {
	r := u.registry
	rec := r.records[address]
	if rec == nil {
		rec = newRecord(address)
		r.records[address] = rec
	}
	rec.round = r.round
	rec.locality.Store(f.locality)
	if rec.endpoint.Swap(f.Endpoint).Proxy != f.Proxy {
		rec.releaseKeptLocked()
	}
	rec.setHealthLocked(f.health)
	rec.load.Store(f.load)
	if u.table != nil {
		u.setSession(rec, f.Endpoint)
	}
}

// remove is for a Record that the configuration does not need any more. Its connections, if any, are
// about to be closed; until then RPCs have the old hostname, and count for the old
// locality.
func (u *update) remove(address string, rec *Record) {
	rec.setHealthLocked(nil)
	if u.table != nil {
		u.table.Delete(address)
		rec.session.forget()
		rec.releaseKeptLocked()
	}
	if loads := u.registry.config.Loads; !loads.Has(rec.load.Load()) {
		rec.load.Store(loads.Elsewhere())
	}
	if len(rec.conns) == 0 {
		delete(u.registry.records, address)
	}
}

func (rec *Record) setHealthLocked(h *Health) {
	if before := rec.health.Swap(h); before.Ejected() != h.Ejected() {
		rec.reportHealthLocked()
	}
}

// addLocked adds c to the connections to its address.
func (r *Registry) addLocked(c *Conn) {
	rec := r.records[c.address]
	if rec == nil {
		rec = newRecord(c.address)
		rec.load.Store(r.config.Loads.Elsewhere())
		r.records[c.address] = rec
	}
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
		delete(r.records, c.address)
	}
	rec.refresh()
}
