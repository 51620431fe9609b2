package relay

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/xdsclient"
)

// errAlone goes with resources while the management servers are unreachable.
var errAlone = func() *status.Status {
	st := status.New(codes.Unavailable, "the control plane of the xDS relay is unreachable: the relay serves what it had")
	if detailed, err := st.WithDetails(dialect.Unreachable()); err == nil {
		return detailed
	}
	return st
}()

// isAway reports whether the management servers of a subscription are unreachable.
func (s *subscription) isAway() bool { return !s.awaySince.IsZero() }

// noteReach notes whether the management servers of a subscription can be reached. The caller holds g.mu.
func (s *subscription) noteReach(err *xdsclient.Error) {
	switch away := err != nil && err.Kind == xdsclient.KindUnreachable; {
	case away == s.isAway():
	case away:
		s.awaySince = time.Now()
		if s.group.relay.away.Add(1) == 1 {
			s.group.relay.log.Warn("the control plane is unreachable; serving clients from the cache", "server", err.Server, "error", err.Err)
		}
	default:
		s.isBack("the control plane answers again")
	}
}

// isBack notes that the management servers are no longer unreachable for a subscription. If they are not for any other of the relay,
// its log says why.
func (s *subscription) isBack(why string) {
	s.awaySince = time.Time{}
	stopTimer(&s.late)
	if s.group.relay.away.Add(-1) == 0 {
		s.group.relay.log.Info(why)
	}
}

// isEarly reports whether the management servers have been unreachable for less than AwayDelay, so that subscribers are not told yet. They
// are when that is over.
func (s *subscription) isEarly() bool {
	left := s.group.relay.opts.AwayDelay - time.Since(s.awaySince)
	if left > 0 && s.late == nil {
		s.group.after(&s.late, left, func() {
			s.late = nil
			s.group.changed(s, false)
		})
	}
	return left > 0
}
