package configselector

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	estats "google.golang.org/grpc/experimental/stats"

	"github.com/dynxds/dynxds/configselector/internal/router"
	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/filterchain"
	"github.com/dynxds/dynxds/internal/rpctrace"
)

// Channel is what the successive Selectors of one channel share: the instances of filters,
// and the router's state of the channel. It is safe for concurrent use.
type Channel struct {
	// Observe, if it is set before there is a Selector, is called when an RPC begins.
	Observe func() rpctrace.Observer

	*router.Channel

	mu        sync.Mutex
	instances map[string]*filterchain.Instance // of the latest Selector, by name
}

// NewChannel returns the Channel of cc, which identifies its Decisions.
// authority is the ":authority" of RPCs that set no other. secure reports whether the
// channel's credentials check the authority, as TLS does. metrics may be nil.
func NewChannel(cc *grpc.ClientConn, authority string, secure bool, metrics estats.MetricsRecorder) *Channel {
	return &Channel{Channel: router.NewChannel(cc, authority, secure, metrics)}
}

// trace returns the hooks for an RPC of the application that begins, or nil.
func (ch *Channel) trace(ctx context.Context) *rpctrace.Trace {
	t := rpctrace.FromContext(ctx)
	if ch.Observe == nil {
		return t
	}
	return rpctrace.Observed(ch.Observe(), t)
}

// Forget is called when RPCs are given to no Selector any more: the next one gets new instances of the filters.
func (ch *Channel) Forget() {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.instances = nil
}

// use returns the instances for a filter chain, in order; nil for entries that are no
// client filters. An entry with the name and type of an old one shares its instance.
func (ch *Channel) use(chain []httpfilter.Instance) []*filterchain.Instance {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	used := make([]*filterchain.Instance, len(chain))
	next := make(map[string]*filterchain.Instance, len(chain))
	for i, entry := range chain {
		filter, ok := entry.Filter.(httpfilter.ClientFilter)
		if !ok {
			continue
		}
		in := ch.instances[entry.Name]
		if in == nil || in.Type != filterchain.TypeOf(filter) {
			in = filterchain.NewInstance(filter, httpfilter.ClientInstanceInfo{Name: entry.Name, Target: ch.Target(), Metrics: ch.Metrics})
		}
		used[i], next[entry.Name] = in, in
	}
	ch.instances = next
	return used
}
