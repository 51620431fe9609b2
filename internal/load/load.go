// Package load counts the RPCs of clusters for load reports to a management server (LRS, gRFC
// A27), and sums up the backend metrics in those reports (gRFCs A64, A85).
//
// It does not send reports (package xdsclient does), enforces no limits (package balancer has
// its own counters for circuit breaking), and is not for metrics of the process. The pickers of
// package balancer count; the Reports go to the stream of the server that the load is for.
//
// A Store has the counts for one server. Start and End of a Locality, and Count of Drops, are
// for the RPC path: they take no lock, and allocate only for a named metric that is new.
// Everything else locks the Store.
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
	clusters map[Key]*Cluster
	// users counts the uses of all clusters.
	users int
	// left counts the clusters without users.
	left int
}

// NewStore returns an empty Store. changed, which may be nil, is called without any lock when
// InUse changes.
func NewStore(changed func()) *Store {
	if changed == nil {
		changed = func() {}
	}
	return &Store{changed: changed, clusters: make(map[Key]*Cluster)}
}

// Use returns the counters of a key until Release. All users of a key share them.
func (s *Store) Use(k Key) *Cluster {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	c := s.clusters[k]
	switch {
	case c == nil:
		c = newCluster(s, k)
		s.clusters[k] = c
	case c.users == 0:
		s.left--
	}
	c.users++
	c.quiet = 0
	s.users++
	first := s.users == 1
	s.mu.Unlock()
	if first {
		s.changed()
	}
	return c
}

// Release ends a Use. What the cluster has counted is still reported, and so are its RPCs in
// flight.
func (c *Cluster) Release() {
	if c == nil {
		return
	}
	s := c.store
	s.mu.Lock()
	c.users--
	s.users--
	if c.users == 0 {
		s.left++
		s.evict()
	}
	last := s.users == 0
	s.mu.Unlock()
	if last {
		s.changed()
	}
}

// InUse reports whether any cluster is in use.
func (s *Store) InUse() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.users > 0
}

// Busy reports whether any cluster is in use or has RPCs in flight.
func (s *Store) Busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users > 0 {
		return true
	}
	for _, c := range s.clusters {
		if c.inProgress() {
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
	for key, c := range s.clusters {
		if wanted != nil && !wanted(key.Cluster) {
			continue
		}
		r := c.takeReport(now)
		if r != nil {
			reports = append(reports, r)
		}
		if c.spent(r) {
			s.drop(c)
		}
	}
	return reports
}

// PutBack returns reports that were not sent: the next Take of their clusters includes them.
func (s *Store) PutBack(reports []*Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range reports {
		c := s.clusters[r.Key]
		if c == nil {
			c = newCluster(s, r.Key)
			s.clusters[r.Key] = c
			s.left++
		}
		c.putBack(r)
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
	for _, c := range s.clusters {
		if c.users == 0 && !c.inProgress() {
			s.drop(c)
			return
		}
	}
}

func (s *Store) drop(c *Cluster) {
	delete(s.clusters, c.key)
	s.left--
}
