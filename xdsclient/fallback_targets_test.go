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
