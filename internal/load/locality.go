package load

import (
	"sync/atomic"

	orcapb "github.com/cncf/xds/go/xds/data/orca/v3"
	"google.golang.org/grpc/balancer"
	_ "google.golang.org/grpc/orca" // has gRPC read the backends' metrics (gRFC A51)
)

// LocalityID identifies a locality. It may be empty.
type LocalityID struct{ Region, Zone, SubZone string }

// Locality counts the RPCs to one locality of a cluster. A nil Locality counts
// nothing.
type Locality struct {
	id LocalityID

	// RPCs on their way are those that were issued less those that ended.
	issued, succeeded, failed atomic.Uint64
	// void are picks that came to nothing: gRPC picked again, as the connection
	// had ended in between.
	void    atomic.Uint64
	metrics metrics

	// What follows is guarded by Store.mu.

	users, quiet int
	reported     Counts
}

func newLocality(id LocalityID) *Locality { return &Locality{id: id} }

// Start is the start of an RPC.
func (l *Locality) Start() {
	if l != nil {
		l.issued.Add(1)
	}
}

// End is the end of an RPC for which Start was called: it succeeded if it ended
// with status OK. which says what to take of the metrics that the backend sent with
// the end; nil: nothing.
func (l *Locality) End(info balancer.DoneInfo, which *Metrics) {
	if l == nil {
		return
	}
	if which != nil {
		if report, _ := info.ServerLoad.(*orcapb.OrcaLoadReport); report != nil {
			l.metrics.add(report, which)
		}
	}
	switch {
	case info.Err != nil:
		l.failed.Add(1)
	case info.BytesSent:
		l.succeeded.Add(1)
	default:
		l.void.Add(1)
	}
}

// counts returns the counts since the Locality was made. As every end is counted
// after its start, and the ends are read first, no RPC has ended that was not
// issued.
func (l *Locality) counts() Counts {
	n := Counts{Succeeded: l.succeeded.Load(), Failed: l.failed.Load()}
	void := l.void.Load()
	n.Issued = l.issued.Load() - void
	n.InProgress = n.Issued - n.Succeeded - n.Failed
	return n
}

// take returns what happened since the last call, or nil if that is nothing. The
// metrics of an RPC that ends just now may come in the report after that of its end.
func (l *Locality) take() *LocalityReport {
	now := l.counts()
	// A pick that came to nothing may have been reported as issued before. The
	// next RPC makes up for it.
	now.Issued = max(now.Issued, l.reported.Issued)
	news := Counts{
		Issued:     now.Issued - l.reported.Issued,
		Succeeded:  now.Succeeded - l.reported.Succeeded,
		Failed:     now.Failed - l.reported.Failed,
		InProgress: now.InProgress,
	}
	measured := l.metrics.written.Swap(false)
	if news == (Counts{}) && !measured {
		l.quiet++
		return nil
	}
	l.reported, l.quiet = now, 0
	r := &LocalityReport{ID: l.id, Counts: news}
	if measured {
		l.metrics.take(r)
	}
	if r.empty() { // the metrics were taken last time, just before they were noted
		return nil
	}
	return r
}
