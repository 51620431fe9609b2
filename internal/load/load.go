// Package load counts the RPCs of clusters for load reports to a management server (LRS, gRFC
// A27), and sums up the backend metrics in those reports (gRFCs A64, A85).
//
// It does not send reports (package xdsclient does), enforces no limits (package balancer has
// its own counters for circuit breaking), and is not for metrics of the process. The pickers of
// package balancer count; the Reports go to the stream of the server that the load is for.
//
// A Store has the counts for one server. Each policy of a cluster uses the counters of its Key in the Store, which it shares with others.
// Start and End of a Locality, and Count of Drops, are for the RPC path: they take no lock and allocate nothing, unless an RPC ends with
// metrics of the backend, which lock the Locality. Everything else locks the Store.
//
// # Nothing is counted twice
//
// The counts of RPCs only grow, and a Report has what was added since the last one; metrics are
// taken out. What a Report that could not be sent has is put back, and the next one includes it. Only
// what was written to a stream that broke before the server read it is lost: the protocol does
// not acknowledge reports.
//
// # Bounds
//
// Clusters and localities that are no longer used stay until their last RPC has ended and has
// been reported, but while reports cannot be sent there are at most 1,000 such clusters, and 1,000
// such localities of a cluster. Drops of a cluster beyond 100 categories are in its total only.
// Named metrics of a locality beyond 1,000 in a Report are omitted, and counted as such.
package load

import (
	"sync"
	"time"
)

// Key identifies what is reported together.
type Key struct {
	// Cluster is the name of the Cluster.
	Cluster string
	// Service is its eds_cluster_config.service_name, which may be empty.
	Service string
}

// Store has the counts of all clusters whose load is reported to one server. It is safe for
// concurrent use.
type Store struct {
	changed func()

	mu       sync.Mutex
	accounts map[Key]*account
	// used counts the accounts with users.
	used int
}

// NewStore returns an empty Store. changed, which may be nil, is called without any lock when
// InUse changes.
func NewStore(changed func()) *Store {
	if changed == nil {
		changed = func() {}
	}
	return &Store{changed: changed, accounts: make(map[Key]*account)}
}

// Use returns the counters of a key until their Release. which selects from the metrics that backends send; nil selects none.
func (s *Store) Use(k Key, which *Metrics) *Cluster {
	s.mu.Lock()
	a := s.account(k)
	a.which.Store(which)
	c := &Cluster{store: s, account: a, elsewhere: a.use(LocalityID{})}
	if a.users++; a.users == 1 {
		s.used++
	}
	first := a.users == 1 && s.used == 1
	s.mu.Unlock()
	if first {
		s.changed()
	}
	return c
}

// account returns the account of a key, if need be a new one, which has no users. The Store is locked.
func (s *Store) account(k Key) *account {
	a := s.accounts[k]
	if a == nil {
		a = &account{since: time.Now(), drops: map[string]*Drops{"": new(Drops)}, byID: make(map[LocalityID]*Locality)}
		s.accounts[k] = a
	}
	return a
}

// Release ends a Use. What was counted is still reported, and so are the RPCs in flight.
func (c *Cluster) Release() {
	if c == nil {
		return
	}
	s := c.store
	s.mu.Lock()
	c.leave(append(c.localities, c.elsewhere)...)
	if c.users--; c.users == 0 {
		s.used--
		s.evict()
	}
	last := s.used == 0
	s.mu.Unlock()
	if last {
		s.changed()
	}
}

// InUse reports whether any cluster is in use.
func (s *Store) InUse() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used > 0
}

// Busy reports whether any cluster is in use or has RPCs in flight.
func (s *Store) Busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.accounts {
		if a.users > 0 || a.inProgress() {
			return true
		}
	}
	return false
}

// Take returns a Report for each wanted cluster that has something to report: everything since
// the last Take that included it. wanted is called with the name of the cluster; nil wants all.
// A Report that cannot be sent must be passed to PutBack.
func (s *Store) Take(wanted func(cluster string) bool) []*Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var reports []*Report
	for key, a := range s.accounts {
		if wanted != nil && !wanted(key.Cluster) {
			continue
		}
		r := Report{Key: key, Interval: now.Sub(a.since)}
		a.since = now
		a.take(&r)
		if !r.empty() {
			found := r // r itself stays on the stack, for the clusters without a report
			reports = append(reports, &found)
		} else if len(a.byID) == 0 { // without users
			delete(s.accounts, key)
		}
	}
	return reports
}

// PutBack returns reports that were not sent: the next Take of their clusters includes them.
func (s *Store) PutBack(reports []*Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range reports {
		a := s.account(r.Key)
		a.since = a.since.Add(-r.Interval)
		a.putBack(r)
		s.evict()
	}
}

// maxLeft is how many clusters without users, and localities of each cluster, are kept while reports
// cannot be sent.
const maxLeft = 1000

// evict removes a cluster without users if there are too many. Those with RPCs in flight stay:
// they are no more than RPCs.
func (s *Store) evict() {
	if len(s.accounts)-s.used <= maxLeft {
		return
	}
	for key, a := range s.accounts {
		if a.users == 0 && !a.inProgress() {
			delete(s.accounts, key)
			return
		}
	}
}
