package load

import (
	"sync/atomic"

	orcapb "github.com/cncf/xds/go/xds/data/orca/v3"
	"google.golang.org/grpc/balancer"
	_ "google.golang.org/grpc/orca" // has gRPC read the backends' metrics (gRFC A51)
)

// LocalityID identifies a locality. It may be empty.
type LocalityID struct{ Region, Zone, SubZone string }

// Locality counts the RPCs to one locality of a cluster. A nil Locality counts nothing.
type Locality struct {
	account *account
	id      LocalityID

	// RPCs in flight are those that were issued and have not ended.
	issued, succeeded, failed atomic.Uint64
	unsent                    unsent

	// The following is guarded by Store.mu.

	users     int
	quiet     int // Takes that have found nothing since
	reported  Counts
	elsewhere uint64 // RPCs in flight of other processes
	// reportedElsewhere says that there were RPCs elsewhere at the last report: that they have
	// ended has to be reported, too.
	reportedElsewhere bool
}

// Start counts the start of an RPC.
func (l *Locality) Start() {
	if l != nil {
		l.issued.Add(1)
	}
}

// End counts the end of an RPC for which Start was called. The RPC succeeded if it ended with
// status OK.
func (l *Locality) End(info balancer.DoneInfo) {
	if l == nil {
		return
	}
	if which := l.account.which.Load(); which != nil {
		if report, _ := info.ServerLoad.(*orcapb.OrcaLoadReport); report != nil {
			l.unsent.add(report, *which)
		}
	}
	switch {
	case info.Err != nil:
		l.failed.Add(1)
	case info.BytesSent:
		l.succeeded.Add(1)
	default: // There was no RPC: the connection had ended, and gRPC picks again.
		l.issued.Add(^uint64(0))
	}
}

// counts returns the counts since the Locality was made. Ends are counted after their starts
// and read before them, so that no RPC has ended that was not issued.
func (l *Locality) counts() Counts {
	n := Counts{Succeeded: l.succeeded.Load(), Failed: l.failed.Load()}
	n.Issued = l.issued.Load()
	n.InProgress = n.Issued - n.Succeeded - n.Failed + l.elsewhere
	return n
}

// take returns what happened since the last call, nil if nothing did. The metrics of an RPC
// that ends concurrently may be in the report before that of its end.
func (l *Locality) take() *LocalityReport {
	now := l.counts()
	// A pick without an RPC may already have been reported as issued. The next RPC makes up for
	// it.
	now.Issued = max(now.Issued, l.reported.Issued)
	r := l.unsent.take()
	r.ID, r.InProgress = l.id, now.InProgress
	r.Issued += now.Issued - l.reported.Issued
	r.Succeeded += now.Succeeded - l.reported.Succeeded
	r.Failed += now.Failed - l.reported.Failed
	ended := l.reportedElsewhere && l.elsewhere == 0
	l.reportedElsewhere = l.elsewhere > 0
	if r.empty() && !ended {
		return nil
	}
	l.reported = now
	found := r // r itself stays on the stack, for the localities without a report
	return &found
}
