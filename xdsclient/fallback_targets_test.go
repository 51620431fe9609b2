package xdsclient

import (
	"strings"
	"testing"
)

// splitSteps give a client two targets: A has the clusters a and s of the higher server, as "high", which
// then refuses streams. B watches s, which is cached.
func splitSteps(plus string) string {
	return strings.ReplaceAll(`
		watch a=A>a sA=A>s         -> high: stream; high: req PLUSa PLUSs
		high: send 1 a=high s=high -> high: ack 1`+map[string]string{"": " a s"}[plus]+`; a = high; sA = high
		high: refuse
		high: break
		wait 1s
		watch sB=B>s               -> sB = high
		low: streams 0
	`, "PLUS", plus)
}

func TestFallbackOfTargets(t *testing.T) {
	missing := func(name string) string { return "xdstp://auth/envoy.config.endpoint.v3.ClusterLoadAssignment/" + name }
	runTranscripts(t, []transcriptTest{
		// gRFC A71: "gRPC will use a shared XdsClient instance for each data plane target", so that one which
		// needs something new does not take along one that has all it needs. The name that both watch is of
		// another server for each.
		{name: "one falls back", servers: ofTwo, steps: splitSteps("+") + `
			watch b=B>b                -> low: stream; low: req +b +s
			low: send 7 b=low s=low    -> low: ack 7; b = low; sB = low
			servers s high low
			high: accept
			wait 2s                    -> high: stream; high: req +a +b +s
			high: send 1 a=high s=high b=high -> high: ack 1; low: closed; sB = high; b = high
			servers s high
			low: streams 1
			stop b                     -> high: req -b
		`, then: func(x *transcript) {
			x.c.mu.Lock()
			defer x.c.mu.Unlock()
			if len(x.c.channels) != 1 || x.c.authorities[authorityKey{}].levels[1].channel != nil {
				x.t.Error("the lower server was not left")
			}
		}},
		// The lower server is asked for what the target that falls back watches, and for nothing else.
		{name: "what the lower server is asked for", over: "SotW", servers: ofTwo, steps: splitSteps("") + `
			watch b=B>b                -> low: stream; low: req b s
			# A third one begins: what is cached for the first one is cached for it.
			watch third=C>a            -> third = high
			watch fresh=C>c            -> low: req a b c s
			low: send 1 a=low b=low c=low s=low -> low: ack 1 a b c s; third = low; fresh = low; sB = low
			    -> b = low
			stop third fresh           -> low: ack 1 b s
		`},
		// Each target returns with the first thing that is of use to it.
		{name: "one returns", servers: ofTwo, steps: `
			high: refuse
			watch e:b=B>e:b d=D>d      -> low: stream; low: e.req +b; low: req +d
			low: send 1 d=low          -> low: ack 1; d = low
			high: accept
			wait 1s                    -> high: stream; high: e.req +b; high: req +d
			high: send 1 d!no          -> high: nack 1
			high: send 2 d=high        -> high: ack 2; d = high; low: req -d
			# What is new for the one that is still there is asked for at both.
			watch e=B>e                -> high: req +e; low: req +e
			low: send 2 e=low          -> low: ack 2; e = low
		`, then: func(x *transcript) {
			if i, j := followed(x.c, "B"), followed(x.c, "D"); i != 1 || j != 0 {
				x.t.Errorf("B and D follow servers %d and %d, want 1 and 0", i, j)
			}
		}},
		// A response that only repeats the one before it is an answer for a target that stands by since.
		{name: "repetition for one that stands by", over: "SotW", servers: ofTwo, steps: splitSteps("") + `
			watch e:c=C>e:c            -> low: stream; low: e.req c
			high: accept
			wait 2s                    -> high: stream; high: req a s; high: e.req c
			high: send 1 a=high s=high -> high: ack 1 a s
			high: send 1 a=high s=high -> high: ack 1 a s
			watch s=C>s                -> low: req s
			low: send 1 s=low          -> low: ack 1 s; s = low
			high: send 1 a=high s=high -> high: ack 1 a s; low: closed; s = high
		`},
		// gRFC A71: watchers are notified that all servers are unreachable if theirs is the last. A target that
		// has all it needs does not go there.
		{name: "no server is reachable", over: "SotW", servers: []string{"", "", ""}, steps: splitSteps("") + `
			low: refuse
			last: refuse
			watch b=B>b                -> b: unreachable; sB ambient: unreachable
			watch late=B>a             -> late = high; late ambient: unreachable
			wait 1m
			watch n=A>n                -> n: unreachable; a ambient: unreachable; sA ambient: unreachable
			# The one in the middle comes back, and then the first.
			low: accept
			wait 8s                    -> low: stream; low: req a b n s
			low: send 1 a=middle b=middle -> low: ack 1 a b n s; b = middle; ?late = high; late = middle
			    -> sB = high; ?a = high; a = middle; sA = high
			high: accept
			wait 8s                    -> high: stream; high: req a b n s
			high: send 9 n=high        -> high: ack 9 a b n s; low: ack 1 a b s; n = high
			high: send 10 n=high b=high -> high: ack 10 a b n s; b = high; low: closed
		`},
		// xRFC TP2: while no server can be reached, a cached variant that matches stands in, even that of a
		// target that follows another server.
		{name: "variant of another target", over: "SotW", servers: []string{"dynamic_parameter_constraints", "dynamic_parameter_constraints"}, steps: `
			watch three=A>a{shard=3}     -> high: stream; high: req a{shard=3}
			high: send 1 a{shard=3}=3    -> high: ack 1 a{shard=3}; three = 3
			high: refuse
			low: refuse
			high: break
			wait 1s
			watch several=B>a{shard=0-5} -> several = 3; several ambient: unreachable
			watch four=B>a{shard=4}      -> four: unreachable
			low: accept
			wait 8s                      -> low: stream; low: req a{shard=0-5} a{shard=4}
			low: send 1 a{shard=4}=4 -> low: ack 1 a{shard=0-5} a{shard=4}; ?several = 3; several = 4
			    -> four = 4
		`},
		// A collection has other members for a target that fell back. On the way down and on the way up a
		// watcher gets the differences.
		{name: "collection", over: "delta", servers: ofTwo, steps: `
			watch cA=A>dir/*              -> high: stream; high: req +dir/*
			high: send 1 dir/a=x dir/b=x  -> high: ack 1; cA member a = x; cA member b = x; cA collection
			high: refuse
			high: break
			wait 1s
			watch cB=B>dir/*              -> cB member a = x; cB member b = x; cB collection
			low: streams 0
			watch eB=B>e:` + missing("e") + ` -> low: stream; low: req +dir/*; low: e.req +` + missing("e") + `
			low: send 1 dir/a=low dir/c=low -> low: ack 1; cB member a = low; cB member b: does not exist
			    -> cB member c = low
			# A second target, which has been notified of members that the lower server does not have.
			watch cC=C>dir/*              -> cC member a = x; cC member b = x; cC collection
			watch eC=C>e:` + missing("f") + ` -> low: e.req +` + missing("f") + `; cC member a = low; cC member b: does not exist; cC member c = low
			high: accept
			wait 2s                       -> high: stream; high: req +dir/*; high: e.req +` + missing("e") + ` +` + missing("f") + `
			high: send 2 dir/a=x dir/d=x -> high: ack 2; low: closed; cA member b: does not exist
			    -> cA member d = x; cB member a = x; cB member c: does not exist; cB member d = x
			    -> cC member a = x; cC member c: does not exist; cC member d = x
		`},
	})
}

// followed returns the place in the list of the server that a target follows, or -1.
func followed(c *XDSClient, target string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.authorities[authorityKey{}].byTarget[target]
	if p == nil {
		return -1
	}
	return p.level.index
}

// serversOf returns which servers the versions in use of a cluster are from, in order.
func serversOf(c *XDSClient, name string) (servers []string) {
	for _, r := range c.Dump().Resources {
		if r.Name == name {
			servers = append(servers, r.Server)
		}
	}
	return servers
}
