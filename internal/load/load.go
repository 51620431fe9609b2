// Package load counts the RPCs of clusters for load reports to a management
// server (LRS, gRFC A27), and sums up the backend metrics that belong into them
// (gRFC A64, A85).
//
// It is not for sending reports (package xdsclient does), not for limits (package
// balancer has counters of its own for circuit breaking), and not for metrics of
// the process. The counts come from the pickers of package balancer; the Reports
// go to the stream of the server that the clusters' load is for.
//
// A Store holds the counts for one server. Start and End of a Locality, and Count
// of Drops, are for the RPC path: they take no lock, and allocate nothing but for
// a named metric that is new. Everything else takes the Store's lock.
//
// # What is counted once
//
// The counts of RPCs only grow, and a Report has what was added since the one
// before; those of metrics are taken out. A Report that could not be sent is put
// back, and the next one includes it. So nothing is counted twice, and nothing is
// lost but what was written to a stream that broke before the server had read it:
// the protocol has no answer to a report.
//
// # Bounds
//
// Clusters and localities that nobody uses any more stay until their last RPC has
// ended and has been reported, or, while reports cannot be sent, until there are
// 1,000 such clusters. Beyond 100 categories of drops of a cluster, further ones
// are in its total only. Beyond 1,000 named metrics of a locality in a Report,
// further ones are left out, and counted as left out.
package load

import (
	"sync"
	"time"
)

// Key names what is reported together.
type Key struct {
	// Cluster is the name of the Cluster.
	Cluster string
	// Service is its eds_cluster_config.service_name, which may be empty.
	Service string
}

// Store holds the counts of all clusters whose load is reported to one server.
// It is safe for concurrent use. A nil Store counts nothing.
type Store struct {
	changed func()

	mu       sync.Mutex
	clusters map[Key]*Cluster
	// users counts the uses of all clusters.
	users int
	// left counts the clusters that have no user.
	left int
}

// NewStore returns an empty Store. changed, which may be nil, is called without
// any lock when the first user of a cluster comes and when the last one goes.
func NewStore(changed func()) *Store {
	if changed == nil {
		changed = func() {}
	}
	return &Store{changed: changed, clusters: make(map[Key]*Cluster)}
}

// Use returns what the key's load is counted by until Release. All users of a key
// share it.
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

// Release ends a Use. What the cluster has counted is still reported, and so are
// its RPCs that are on their way.
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

// Busy reports whether any cluster is in use or has RPCs on their way.
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

// Take returns a Report for each cluster that is wanted and has something to say:
// everything since the last Take that had it. wanted is called with the name of the
// cluster; nil wants all. A Report that cannot be sent is to be handed to PutBack.
func (s *Store) Take(wanted func(cluster string) bool) []*Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var reports []*Report
	for key, c := range s.clusters {
		if wanted != nil && !wanted(key.Cluster) {
			continue
		}
		r := c.take(now)
		if r != nil {
			reports = append(reports, r)
		}
		if c.spent(r) {
			s.drop(c)
		}
	}
	return reports
}

// PutBack says that reports were not sent: the next Take of their clusters
// includes them.
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

// maxLeft is how many clusters without users are kept for a report that cannot be
// sent.
const maxLeft = 1000

// evict forgets a cluster without users if there are too many. Those that have RPCs
// on their way stay: there are no more of them than RPCs.
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
