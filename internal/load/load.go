// Package load counts the RPCs of clusters for load reports to a management server (LRS, gRFC
// A27), and sums up the backend metrics in those reports (gRFCs A64, A85).
//
// It does not send reports (package xdsclient does), enforces no limits (package balancer has
// its own counters for circuit breaking), and is not for metrics of the process. The pickers of
// package balancer count; the Reports go to the stream of the server that the load is for.
//
// A Store has the counts for one server. Each policy of a cluster has a Cluster of its own in the
// Store, and a Report sums up the Clusters of a Key. Start and End of a Locality, and Count of Drops,
// are for the RPC path: they take no lock and allocate nothing, unless an RPC ends with metrics of
// the backend, which lock the Locality. Everything else locks the Store.
//
// # Nothing is counted twice
//
// The counts of RPCs only grow, and a Report has what was added since the last one; metrics are
// taken out. A Report that could not be sent is put back, and the next one includes it. Only
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
	"slices"
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
// concurrent use. A nil Store counts nothing.
type Store struct {
	changed func()

	mu       sync.Mutex
	accounts map[Key]*account
	// left counts the accounts without users.
	left int
}

// account has what is to be reported of one Key.
type account struct {
	// since is when the next Report begins.
	since time.Time
	// users counts the clusters that are in use. The others have RPCs in flight, or something that was not reported yet.
	users    int
	clusters []*Cluster
	// unsent is what was put back, or nil.
	unsent *Report
}

// NewStore returns an empty Store. changed, which may be nil, is called without any lock when
// InUse changes.
func NewStore(changed func()) *Store {
	if changed == nil {
		changed = func() {}
	}
	return &Store{changed: changed, accounts: make(map[Key]*account)}
}

// Use returns counters of a key until their Release. A Report sums up those of all users of a key. which
// selects from the metrics that backends send; nil selects none.
func (s *Store) Use(k Key, which *Metrics) *Cluster {
	if s == nil {
		return nil
	}
	c := &Cluster{store: s, key: k, which: which, drops: map[string]*Drops{"": new(Drops)}, localities: make(map[LocalityID]*Locality)}
	c.localityLocked(LocalityID{})
	s.mu.Lock()
	first := !s.inUse()
	a := s.account(k)
	if a.users++; a.users == 1 {
		s.left--
	}
	a.clusters = append(a.clusters, c)
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
		a = &account{since: time.Now()}
		s.accounts[k] = a
		s.left++
	}
	return a
}

// Release ends a Use. What the cluster has counted is still reported, and so are its RPCs in
// flight.
func (c *Cluster) Release() {
	if c == nil {
		return
	}
	s := c.store
	s.mu.Lock()
	c.retireLocked()
	a := s.accounts[c.key]
	if a.users--; a.users == 0 {
		s.left++
		s.evict()
	}
	last := !s.inUse()
	s.mu.Unlock()
	if last {
		s.changed()
	}
}

// InUse reports whether any cluster is in use.
func (s *Store) InUse() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inUse()
}

func (s *Store) inUse() bool { return len(s.accounts) > s.left }

// Busy reports whether any cluster is in use or has RPCs in flight.
func (s *Store) Busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inUse() {
		return true
	}
	for _, a := range s.accounts {
		if a.inProgress() {
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
		a.takeInto(&r)
		if !r.empty() {
			found := r // r itself stays on the stack, for the clusters without a report
			reports = append(reports, &found)
		} else if len(a.clusters) == 0 {
			s.drop(key)
		}
	}
	return reports
}

// takeInto moves what happened since the last Report to r.
func (a *account) takeInto(r *Report) {
	for _, c := range a.clusters {
		c.takeInto(r)
	}
	a.clusters = slices.DeleteFunc(a.clusters, (*Cluster).spent)
	if a.unsent != nil {
		r.merge(a.unsent)
		a.unsent = nil
	}
}

func (a *account) inProgress() bool { return slices.ContainsFunc(a.clusters, (*Cluster).inProgress) }

// PutBack returns reports that were not sent: the next Take of their clusters includes them.
func (s *Store) PutBack(reports []*Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range reports {
		a := s.account(r.Key)
		a.since = a.since.Add(-r.Interval)
		if a.unsent == nil {
			a.unsent = r
		} else {
			a.unsent.merge(r)
		}
		s.evict()
	}
}

// maxLeft is how many clusters without users, and localities of each cluster, are kept while reports
// cannot be sent.
const maxLeft = 1000

// evict removes a cluster without users if there are too many. Those with RPCs in flight stay:
// they are no more than RPCs.
func (s *Store) evict() {
	if s.left <= maxLeft {
		return
	}
	for key, a := range s.accounts {
		if a.users == 0 && !a.inProgress() {
			s.drop(key)
			return
		}
	}
}

// drop removes the account of a cluster without users.
func (s *Store) drop(k Key) {
	delete(s.accounts, k)
	s.left--
}
