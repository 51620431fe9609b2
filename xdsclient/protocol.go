package xdsclient

import (
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// A server that answers UNIMPLEMENTED to delta, which its bootstrap entry promises, is spoken to in SotW at once, on one stream. It may
// have been somebody else who answered, such as an ingress that did not find the server, so each stream after that is delta again:
//
//	delta stream  UNIMPLEMENTED
//	SotW stream   works until the server restarts
//	delta stream  works

// promised returns the best dialect that a server's bootstrap entry promises.
func promised(server *bootstrap.Server) wire.Dialect {
	return wire.Dialect{
		Incremental: server.HasFeature(bootstrap.FeatureDelta),
		Locators:    server.HasFeature(bootstrap.FeatureDynamicParameterConstraints),
	}
}

// chooseDialect returns the dialect of the next stream. That of the one after it is the best again. Versions of one dialect mean
// nothing in another, so after a change the server has to send again what it has sent.
func (ch *managementServer) chooseDialect() wire.Dialect {
	ch.client.mu.Lock()
	defer ch.client.unlock()
	next := promised(ch.server)
	next.Incremental = next.Incremental && !ch.withoutDelta
	ch.withoutDelta = false
	if next == ch.dialect {
		return next
	}
	ch.dialect = next
	for _, ts := range ch.types {
		for s := range ts.subs.all() {
			ts.forgetAnswers(s)
		}
	}
	return next
}

// downgrade has the next stream be SotW after the server said that it does not implement delta. It is no error
// that a watcher needs to know of, and no reason to wait.
func (ch *managementServer) downgrade() bool {
	ch.client.mu.Lock()
	defer ch.client.unlock()
	if !ch.link.Unanswered() || !ch.dialect.Incremental {
		return false
	}
	if ch.withoutDelta = true; !ch.saidWithoutDelta {
		ch.saidWithoutDelta = true
		ch.client.warningf("xDS management server %s does not implement %s, which its server_features promise; using %s, and trying again with each stream after that",
			ch.server, ch.dialect.Method(), wire.Dialect{}.Method())
	}
	ch.link.Restart()
	ch.reset()
	return true
}
