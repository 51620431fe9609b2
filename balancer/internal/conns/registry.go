package conns

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynxds/dynxds/internal/clustertls"
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
	// ResolveNow requests another look-up of the addresses of endpoints. It does not block and
	// may be called from any goroutine. It is nil if nothing is looked up.
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
	// version counts the changes of what sessions see. waiting is set while a pick waits
	// for the next one.
	version atomic.Uint64
	waiting atomic.Bool

	mu      sync.Mutex
	records map[string]*Record
	config  Config
	round   uint64 // counts the updates
	closed  bool
}

// Record is what is known of one address. It exists while an endpoint of the
// configuration has the address and something is known of it, or while there is a
// connection to it.
type Record struct {
	hostname atomic.Pointer[string]
	health   atomic.Pointer[Health]
	target   atomic.Pointer[Target]
	session  atomic.Pointer[Session]

	// The rest is guarded by Registry.mu.

	conns []*Conn
	// failure is the last error of a connection, nil if there was none; failed is its time.
	failure error
	failed  time.Time
	shown   tlsadvice.Server
	proxy   string // for new connections
	round   uint64 // the last update with something known of the address
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
	Loads *Loads
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
	targets := c.Loads.open(c.Localities)
	u := update{registry: r, Config: c}
	r.mu.Lock()
	var checked []*Conn
	if before := r.config.HealthCheck; (before == nil) != (c.HealthCheck == nil) || before != nil && *before != *c.HealthCheck {
		checked = r.connsLocked()
	}
	r.config = c
	r.round++
	if track {
		u.table = r.sessionTable().Edit()
	}
	n := 0
	for i := range c.Localities {
		for j := range c.Localities[i].Endpoints {
			f := facts{endpoint: &c.Localities[i].Endpoints[j], locality: &c.Localities[i].ID}
			if c.Health != nil {
				f.health = c.Health[n]
			}
			if c.Loads != nil {
				f.target = targets[i]
			}
			n++
			u.set(f.endpoint.Address, f)
			for _, address := range f.endpoint.Additional {
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
	r.mu.Unlock()
	c.Loads.releaseUnused()
	for _, conn := range u.ejections {
		conn.reportHealth()
	}
	for _, conn := range checked {
		conn.healthCheckChanged()
	}
	releaseAll(u.released)
	if track {
		r.notify()
	}
}

// connsLocked returns all connections.
func (r *Registry) connsLocked() (all []*Conn) {
	for _, rec := range r.records {
		all = append(all, rec.conns...)
	}
	return all
}

// update is one call of Update. Its methods are called with Registry.mu held.
type update struct {
	registry *Registry
	Config
	table *pmap.Builder[*Record] // nil before Track
	// ejections are the connections whose endpoint was ejected before and is not now, or the
	// other way round; released are those that sessions may use no longer.
	ejections, released []*Conn
}

// facts are what the configuration has for an address.
type facts struct {
	endpoint *xdsresource.Endpoint
	locality *xdsresource.LocalityID
	health   *Health
	target   *Target
}

// endpoint returns the hostname and the proxy of the endpoint that has an address, "" for
// none.
func (r *Registry) endpoint(address string) (hostname, proxy string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec := r.records[address]; rec != nil {
		if h := rec.hostname.Load(); h != nil {
			hostname = *h
		}
		proxy = rec.proxy
	}
	return hostname, proxy
}

func (u *update) set(address string, f facts) {
	r := u.registry
	var hostname *string
	if f.endpoint.Hostname != "" {
		hostname = &f.endpoint.Hostname
	}
	known := hostname != nil || f.health != nil || f.target != nil || u.table != nil
	rec := r.records[address]
	if rec == nil {
		if !known {
			return
		}
		rec = new(Record)
		r.records[address] = rec
	}
	if known {
		rec.round = r.round
	}
	rec.hostname.Store(hostname)
	if rec.proxy != f.endpoint.Proxy {
		rec.proxy = f.endpoint.Proxy
		u.release(rec)
	}
	u.setHealth(rec, f.health)
	// Without load reports the old target stays, for RPCs of pickers that are about to be
	// replaced. Later ones do not ask for it.
	if f.target != nil {
		rec.target.Store(f.target)
	}
	if u.table != nil {
		u.setSession(address, rec, f)
	}
}

// remove is for a Record that the configuration does not need any more. Its connections, if any, are
// about to be closed; until then RPCs have the old hostname, and count for the old
// locality.
func (u *update) remove(address string, rec *Record) {
	u.setHealth(rec, nil)
	if u.table != nil {
		u.table.Delete(address)
		rec.session.Store(nil)
		u.release(rec)
	}
	if t := rec.target.Load(); u.Loads != nil && (t == nil || t.loads != u.Loads) {
		rec.target.Store(u.Loads.elsewhere)
	}
	if len(rec.conns) == 0 {
		delete(u.registry.records, address)
	}
}

func (u *update) setHealth(rec *Record, h *Health) {
	if before := rec.health.Load(); before != h {
		rec.health.Store(h)
		if before.Ejected() != h.Ejected() {
			u.ejections = append(u.ejections, rec.conns...)
		}
	}
}

// removeLocked removes c from the connections of its Record, and the Record if nothing
// else needs it.
func (r *Registry) removeLocked(c *Conn) {
	rec := c.record
	c.owner = released
	rec.conns = slices.DeleteFunc(rec.conns, func(other *Conn) bool { return other == c })
	if len(rec.conns) == 0 && rec.round != r.round {
		delete(r.records, c.address)
	}
	rec.refresh()
}
