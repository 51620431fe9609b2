package configselector

import (
	"sync"

	"google.golang.org/grpc"
	estats "google.golang.org/grpc/experimental/stats"

	"github.com/dynxds/dynxds/configselector/internal/router"
	"github.com/dynxds/dynxds/httpfilter"
)

// Channel is what the Selectors of one channel hand on from one to the next: the
// instances of filters, and what the router keeps of the channel. It is safe for
// concurrent use.
type Channel struct {
	cc         *grpc.ClientConn
	authority  string
	rpcs       *router.Channel
	mismatched mismatched

	mu        sync.Mutex
	instances map[string]*instance // of the latest Selector, by name
}

// NewChannel returns the Channel of cc, which marks the Decisions. It has to be closed.
// authority is the ":authority" of RPCs that ask for no other. secure says that the
// channel's credentials check the authority, as TLS does. metrics, which may be nil,
// gets the metrics of the router.
func NewChannel(cc *grpc.ClientConn, authority string, secure bool, metrics estats.MetricsRecorder) *Channel {
	return &Channel{cc: cc, authority: authority, rpcs: router.NewChannel(cc, authority, secure, metrics)}
}

// Close ends what belongs to the channel and not to an RPC of it. The Selectors
// are to be retired before.
func (ch *Channel) Close() { ch.rpcs.Close() }

// instance is a filter under one name on the channel.
type instance struct {
	name, typeURL string
	impl          httpfilter.ClientInstance
	close         func() // nil: nothing to close
	uses          int    // Selectors; guarded by Channel.mu
}

// use returns the instances for a filter chain, in its order, nil for entries
// that are not for us to run. Those of the same name and type as before are the
// same as before.
func (ch *Channel) use(chain []httpfilter.Instance) []*instance {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	used := make([]*instance, len(chain))
	next := make(map[string]*instance, len(chain))
	for i, entry := range chain {
		filter, ok := entry.Filter.(httpfilter.ClientFilter)
		if !ok {
			continue
		}
		in := ch.instances[entry.Name]
		if in == nil || in.typeURL != typeOf(filter) {
			in = newInstance(ch, entry.Name, filter)
		}
		in.uses++
		used[i], next[entry.Name] = in, in
	}
	ch.instances = next
	return used
}

func newInstance(ch *Channel, name string, filter httpfilter.ClientFilter) *instance {
	in := &instance{name: name, typeURL: typeOf(filter)}
	in.impl = filter.NewClientInstance(httpfilter.ClientInstanceInfo{Name: name, Target: ch.rpcs.Target()})
	if c, ok := in.impl.(interface{ Close() }); ok {
		in.close = c.Close
	}
	return in
}

// typeOf names a type of filter. Filters need not be comparable, and none
// shares a type URL with another.
func typeOf(f httpfilter.Filter) string {
	if urls := f.TypeURLs(); len(urls) > 0 {
		return urls[0]
	}
	return ""
}

// release undoes use. It closes what nobody uses any more.
func (ch *Channel) release(used []*instance) {
	var unused []*instance
	ch.mu.Lock()
	for _, in := range used {
		if in == nil {
			continue
		}
		if in.uses--; in.uses == 0 {
			unused = append(unused, in)
			if ch.instances[in.name] == in {
				delete(ch.instances, in.name)
			}
		}
	}
	ch.mu.Unlock()
	for _, in := range unused {
		if in.close != nil {
			in.close()
		}
	}
}
