package controlplane

import (
	"maps"
	"time"

	"github.com/dynxds/dynxds/internal/bounds"
)

// What a thing takes in memory, about, without its name.
const (
	loadBytes       = 256
	clusterBytes    = 10 * loadBytes // a Snapshot has two more allocations for it
	inProgressBytes = 64
)

// forgetAfter is for how many intervals clients must not have added to a sum before it makes room for others.
// Clients report a sum in each interval in which it grows or has RPCs in progress.
const forgetAfter = 3

// age is a time since the reports were made, without the size of a time.Time.
type age time.Duration

// kept is what each sum has: what it takes of the room, who pays for that, and when it was last reported.
type kept struct {
	by    *loadPeer
	bytes int
	at    age
}

// expire gives the room back if the sum was not reported since then, and reports whether it was not.
func (k *kept) expire(since age) bool {
	if k.at >= since {
		return false
	}
	k.by.Give(int64(k.bytes))
	return true
}

// loadRoom limits the memory of the sums, with a share for each peer: the one that first reported a sum pays for it.
// Guarded by LoadReports.mu.
type loadRoom struct {
	began time.Time
	bytes *bounds.Quota
	peers map[string]*loadPeer
	// swept is when sums were last forgotten.
	swept age
}

// loadPeer is a peer with streams, or with sums that it pays for.
type loadPeer struct {
	*bounds.Share
	name    string
	streams int
}

func newLoadRoom(bytes int64) loadRoom {
	return loadRoom{
		began: time.Now(),
		bytes: bounds.NewQuota("bytes of load reports", bytes),
		peers: make(map[string]*loadPeer),
	}
}

func (r *loadRoom) age() age { return age(time.Since(r.began)) }

// join counts a stream of a peer.
func (r *loadRoom) join(name string) *loadPeer {
	p := r.peers[name]
	if p == nil {
		p = &loadPeer{Share: r.bytes.Share(), name: name}
		r.peers[name] = p
	}
	p.streams++
	return p
}

// leave counts a stream less.
func (r *loadRoom) leave(p *loadPeer) {
	if p.streams--; p.streams == 0 && p.Held() == 0 {
		delete(r.peers, p.name)
	}
}

// keep makes room for a sum. fits reports whether the place of the sum has room. If there is none, old sums
// are forgotten.
func (r *report) keep(size int, fits func() bool) (k kept, ok bool) {
	l := r.stream.reports
	by := r.stream.peer
	take := func() bool { return fits() && by.Take(int64(size)) == nil }
	return kept{by, size, r.at}, take() || l.forget(r.at) && take()
}

// forget forgets the sums that nobody reports any more. It does so once in an interval at most, and returns whether it
// did. The caller holds mu.
func (l *LoadReports) forget(now age) bool {
	if now-l.room.swept < age(l.opts.Interval) {
		return false
	}
	l.room.swept = now
	old := now - forgetAfter*age(l.opts.Interval)
	gone := make(map[*localityLoad]struct{})
	maps.DeleteFunc(l.loads, func(_ loadKey, c *clusterLoad) bool {
		c.forget(old, gone)
		return c.expire(old)
	})
	if len(gone) > 0 {
		for st := range l.streams {
			maps.DeleteFunc(st.inProgress, func(at *localityLoad, _ uint64) bool {
				_, in := gone[at]
				if in {
					st.peer.Give(inProgressBytes)
				}
				return in
			})
		}
	}
	maps.DeleteFunc(l.room.peers, func(_ string, p *loadPeer) bool { return p.streams == 0 && p.Held() == 0 })
	return true
}

// forget forgets the parts of a cluster that were not reported since then. It adds the localities among them to gone.
func (c *clusterLoad) forget(since age, gone map[*localityLoad]struct{}) {
	maps.DeleteFunc(c.dropped, func(_ string, n *categoryLoad) bool { return n.expire(since) })
	maps.DeleteFunc(c.localities, func(_ localityKey, at *localityLoad) bool {
		maps.DeleteFunc(at.metrics, func(_ string, m *metricLoad) bool { return m.expire(since) })
		if !at.expire(since) {
			return false
		}
		gone[at] = struct{}{}
		return true
	})
}
