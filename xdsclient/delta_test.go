package xdsclient

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
)

func TestDeltaTranscripts(t *testing.T) {
	runTranscripts(t, []transcriptTest{
		// Envoy, xDS protocol, "Knowing When a Requested Resource Does Not Exist" (incremental), for a type
		// that has no full state in SotW; gRFC A88, "Handling Data Errors".
		{name: "removed resources", over: "delta", steps: removedResources(" ambient")},
		{name: "removed resources, fail_on_data_errors", over: "delta", servers: []string{"fail_on_data_errors"}, steps: removedResources("")},
		// Envoy, xDS protocol, "Resource names": a resource is for all who subscribed to its name or to one
		// of its aliases.
		{name: "aliases", over: "delta", steps: `
			watch own one two three -> stream; req +one +own +three +two
			send 1 own|two|own|one|unknown|one|=x -> ack 1; own = x; one = x; two = x
			same own one two
			decoded 1
			wait 15s                -> three: timeout
			# Unchanged, for all; and an error in the data is one for all.
			send 2 own|one|two=x    -> ack 2
			send 3 own|one|two!bad  -> nack 3; own ambient: invalid; one ambient: invalid; two ambient: invalid
			# A removal, or an error, names the resource.
			send 4 -own -> ack 4; own ambient: does not exist; one ambient: does not exist
			    -> two ambient: does not exist
			send 5 own?Internal -> ack 5; own ambient: server error; one ambient: server error
			    -> two ambient: server error
			send 6 own|one|two=x    -> ack 6; own = x; one = x; two = x
			# Versions are given for the resource.
			stop one                -> req -one
			break                   -> stream; req +own +three +two has own@6
		`, then: func(x *transcript) {
			x.c.mu.Lock()
			defer x.c.mu.Unlock()
			types := x.c.channels[channelKey{server: x.c.config.Servers[0].Key()}].types
			xdstest.Equal(x.t, "subscriptions known by the resource's canonical name", 1, len(types[0].byCanonicalName["own"]))
		}},
		// Envoy, xDS protocol, "Knowing When a Requested Resource Does Not Exist" (incremental): clients are
		// "still encouraged to use a timeout". A delta server names what does not exist,
		// and silence is delay.
		{name: "resource timer", over: "delta", steps: `
			watch a e:e   -> stream; req +a; e.req +e
			wait 14999ms
			wait 1ms      -> a: timeout; e:e: timeout
			send 1 a=x    -> ack 1; a = x
			watch late    -> req +late
			wait 5s
			watch soon    -> req +soon
			send 2 soon=x -> ack 2; soon = x
			wait 9999ms
			wait 1ms      -> late: timeout
			# The server has not answered for this type.
			watch e:other -> e.req +other
			wait 15s      -> e:other: timeout
			wait 1h
			# On the next stream it has not answered yet.
			break         -> stream; req +a +late +soon has a@1 soon@2; e.req +e +other
			watch fresh   -> req +fresh
			wait 15s      -> fresh: timeout
		`},
	})
}

// removedResources is a transcript in which a resource is removed that is in use, which is told as the
// text in between says.
func removedResources(how string) string {
	return fmt.Sprintf(`
		watch e:e e:never      -> stream; e.req +e +never
		send e:1 e -never -u   -> e.ack 1; e:e =; e:never: does not exist
		send e:2 -e -never     -> e.ack 2; e:e%s: does not exist
		send e:3 e never       -> e.ack 3; e:e =; e:never =
		# What is not in a response is not removed by it.
		send e:4               -> e.ack 4
	`, how)
}

// A watch that ends while its request is being written is unsubscribed from.
func TestDeltaWatchStoppedWhileItsRequestIsWritten(t *testing.T) {
	t.Parallel()
	types := newTestTypes()
	k := newDeltaCore(t)
	k.c.Watch(types.clusters, "a", &counter{})
	k.answer()
	stop := k.c.Watch(types.clusters, "b", &counter{})
	r, _ := k.channel.NextRequest()
	if !slices.Equal(r.Subscribe.Names, []string{"b"}) {
		t.Fatalf("got request %+v, want a subscription to b", r)
	}
	stop()
	k.channel.Sent()
	r, _ = k.channel.NextRequest()
	if r == nil || !slices.Equal(r.Unsubscribe.Names, []string{"b"}) {
		t.Fatalf("got request %+v, want an unsubscription from b", r)
	}
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	if _, overdue := k.channel.expiry.nextOverdue(); overdue || k.channel.types[0].subs["b"] != nil {
		t.Error("something of the subscription is left")
	}
}

// A server that reads no answers is cut off before they fill the memory.
func TestDeltaBacklogIsBounded(t *testing.T) {
	t.Parallel()
	types := newTestTypes()
	k := newDeltaCore(t)
	k.c.Watch(types.clusters, "a", &counter{})
	k.answer()
	const replies = 64 // fill the backlog
	nonce := strings.Repeat("n", ads.MaxBacklog/replies-64)
	for i := range 2 * replies {
		_, d, err := k.channel.Receive(k.delta(types.clusters, nonce, lacks(fmt.Sprint("x", i))))
		switch {
		case i < replies && err != nil:
			t.Fatalf("response %d: %v", i, err)
		case i >= replies && (!errors.Is(err, ads.ErrUnread) || d != nil):
			t.Fatalf("response %d: got error %v, want %v", i, err, ads.ErrUnread)
		}
		if d != nil {
			<-d
			k.channel.Delivered()
			k.channel.Reading()
		}
	}
}

// There is one version by name, of which a server takes it that all subscriptions have it.
func TestVersionsOfNamesBesideTheirCollection(t *testing.T) {
	tests := []transcriptTest{}
	// A subscription that began while the server was away, to a member of a collection that the client has, or
	// to the collection of a resource that it has, has the server asked for all again.
	for first, second := range map[string]string{"dir/a": "dir/*", "dir/*": "dir/a"} {
		got := "dir/a = x"
		if first == "dir/*" {
			got = "dir/* member dir/a = x; dir/* collection"
		}
		tests = append(tests, transcriptTest{name: first + " first", over: "delta", steps: strings.NewReplacer(
			"FIRST", first, "SECOND", second, "GOT", strings.ReplaceAll(got, "member dir/", "member ")).Replace(`
			watch FIRST a b        -> stream; req +a +b +FIRST
			send 1 dir/a=x a=x b=x -> ack 1; GOT; a = x; b = x
			break
			watch second=SECOND
			wait 1s                -> stream; req +a +b +dir/* +dir/a has a@1 b@1 dir/a@
		`)})
	}
	// A delta response does not say what it answers. One to a name that comes after the wildcard was asked for
	// is taken as the beginning of the answer for both. If the stream ends before the rest, the wildcard lacks
	// the resources that the client had before by their names, and has to be sent these.
	for name, dir := range map[string]string{"wildcard": "", "glob collection": "dir/"} {
		tests = append(tests, transcriptTest{name: name, over: "delta", steps: strings.ReplaceAll(`
			watch DIRa           -> stream; req +DIRa
			send 1 DIRa=x        -> ack 1; DIRa = x
			watch DIRb           -> req +DIRb
			watch c=DIR*         -> req +DIR*
			send 2 DIRb@1=x      -> ack 2; DIRb = x; c member b = x; c collection
			break
			wait 1s              -> stream; req +DIR* +DIRa +DIRb has DIRa@ DIRb@1
			send 3 DIRa@1=x      -> ack 3; c member a = x
			break
			wait 1s              -> stream; req +DIR* +DIRa +DIRb has DIRa@1 DIRb@1
		`, "DIR", dir)})
	}
	runTranscripts(t, tests)
}
