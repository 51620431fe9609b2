package xdsclient

import (
	"slices"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
)

// knowsVariants reports whether one of the servers can be asked for variants of resources
// (xRFC TP2). If none can, constraints choose nothing, and all watches of a name
// are of one resource.
func (a *authority) knowsVariants() bool {
	return slices.ContainsFunc(a.servers, func(server *bootstrap.Server) bool {
		return server.HasFeature(bootstrap.FeatureDynamicParameterConstraints)
	})
}

// adoptAnswer gives a new subscription the server's answer for another subscription to the name,
// at a server that goes by names: it will not say it again.
func (s *subscription) adoptAnswer() {
	ts := s.types
	if ts.channel.dialect.Locators {
		return
	}
	for other := range ts.subs.first[s.resource.key.name].siblings() {
		if other != s && other.hasAnswer() {
			s.copyAnswer(other)
			return
		}
	}
}

// hasAnswer reports whether the server has said something of the resource that stands.
func (s *subscription) hasAnswer() bool {
	switch s.State {
	case ads.Received, ads.Silent, ads.Missing, ads.Failed:
		return s.payload != nil || s.err != nil
	default:
		return false
	}
}

// copyAnswer gives a subscription the server's answer for another subscription to the same name.
func (s *subscription) copyAnswer(from *subscription) {
	s.State, s.requested, s.lastAnswer = from.State, from.requested, from.about(s.resource)
	s.types.setCanonicalName(s, from.canonical)
	for m := range from.members.all() {
		s.addMember(Member{m.resource.key.name, m.resource.parameters}).copyAnswer(m)
	}
}
