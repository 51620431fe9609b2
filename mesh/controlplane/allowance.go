package controlplane

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// allowance is what a stream may make the server hold, and what it does.
type allowance struct {
	limits limits
	// used counts against limits. Only the reader uses it.
	used usage
	// tab is what the stream holds of what its peer may hold.
	tab     *tab
	replies replies
}

// limits bound what one client may make the server remember.
type limits struct {
	names int
	bytes int
}

type usage struct{ names, bytes int }

// use adds to the client's usage, or returns RESOURCE_EXHAUSTED.
func (s *allowance) use(more usage) error {
	next := usage{names: s.used.names + more.names, bytes: s.used.bytes + more.bytes}
	if next.names > s.limits.names {
		return s.tooManyNames(next.names)
	}
	if next.bytes > s.limits.bytes {
		return s.refused("stream_bytes", status.Errorf(codes.ResourceExhausted,
			"the stream's node, types and resource names have %d bytes, the server allows %d per stream: subscribe to fewer, or raise the limit at the server (Options.MaxNameBytes)",
			next.bytes, s.limits.bytes))
	}
	if more.names < 0 {
		s.tab.give(ofSubscriptions, int64(-more.names))
	} else if err := s.tab.take(ofSubscriptions, int64(more.names)); err != nil {
		return err
	}
	s.used = next
	return nil
}

func (s *allowance) tooManyNames(names int) error {
	return s.refused("stream_names", status.Errorf(codes.ResourceExhausted,
		"the stream subscribes to %d types and resources, the server allows %d per stream: subscribe to fewer, or raise the limit at the server (--max-subscriptions, Options.MaxSubscriptions)",
		names, s.limits.names))
}

// refused counts a refusal for a limit of the stream.
func (s *allowance) refused(limit string, err error) error {
	if s.tab != nil && s.tab.quotas.onRefused != nil {
		s.tab.quotas.onRefused(limit)
	}
	return err
}
