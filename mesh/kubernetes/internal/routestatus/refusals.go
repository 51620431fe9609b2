package routestatus

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/cluster"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// Refusals are the routes that clients of this replica have rejected (NACK), and accepted since none of. They are safe for
// concurrent use.
type Refusals struct {
	noted chan struct{}

	mu      sync.Mutex
	list    []refusal
	changed chan struct{}
}

// refusal is that of the routes to one service by one client.
type refusal struct {
	stream  uint64
	client  meshroute.Client
	service string
	text    string
}

const (
	// refusalInterval is the least time between two looks at the clients. There are none while no client rejects anything.
	refusalInterval = 2 * time.Second
	// maxRefusals bounds the list, maxTexts the texts in a message, and maxRefusalText the bytes of each.
	maxRefusals, maxTexts, maxRefusalText = 1000, 3, 256
)

// NewRefusals returns none.
func NewRefusals() *Refusals {
	return &Refusals{noted: make(chan struct{}, 1), changed: make(chan struct{})}
}

// Note is for controlplane.Options.OnNACK.
func (r *Refusals) Note(controlplane.Rejection) {
	select {
	case r.noted <- struct{}{}:
	default:
	}
}

// Follow looks at the clients of a server after each NACK, and while there are refusals, until the context ends.
func (r *Refusals) Follow(ctx context.Context, server *controlplane.Server) {
	for {
		var again <-chan time.Time
		if list, _ := r.current(); len(list) > 0 {
			again = time.After(refusalInterval)
		}
		select {
		case <-ctx.Done():
			return
		case <-r.noted:
		case <-again:
		}
		r.set(refusalsOf(server))
		select {
		case <-ctx.Done():
			return
		case <-time.After(refusalInterval):
		}
	}
}

// current returns the refusals, and a channel that is closed when there are others.
func (r *Refusals) current() ([]refusal, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.list, r.changed
}

func (r *Refusals) set(list []refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	same := slices.EqualFunc(r.list, list, func(a, b refusal) bool {
		return a.stream == b.stream && a.service == b.service && a.text == b.text
	})
	if same {
		return
	}
	r.list = list
	close(r.changed)
	r.changed = make(chan struct{})
}

// refusing reports whether a client rejects routes.
func refusing(t controlplane.TypeStatus) bool {
	return t.TypeURL == meshroute.RouteConfigurationType && t.Refusing && t.NACK != nil
}

// refusalsOf looks at the clients of a server.
func refusalsOf(server *controlplane.Server) (list []refusal) {
	// The overview costs next to nothing, but does not have all names: these are asked for where a client refuses routes.
	for _, c := range server.Overview() {
		if !slices.ContainsFunc(c.Types, refusing) {
			continue
		}
		c, _ = server.Client(c.ID)
		for _, t := range c.Types {
			if !refusing(t) {
				continue
			}
			text := t.NACK.Err.Message()
			names := t.Names
			// A response may have routes of several services. Clients mostly say which they mean.
			if meant := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !strings.Contains(text, name) }); len(meant) > 0 {
				names = meant
			}
			for _, name := range names {
				if len(list) == maxRefusals {
					return list
				}
				list = append(list, refusal{c.ID, meshroute.ClientFromNode(c.Node), serviceIn(name), bounds.Text(text, maxRefusalText)})
			}
		}
	}
	return list
}

// serviceIn returns the service in the name of its routes.
func serviceIn(name string) string {
	if !strings.HasPrefix(name, xdsname.Prefix) {
		return name
	}
	id := name[strings.LastIndexByte(name, '/')+1:]
	id, _, _ = strings.Cut(id, "?")
	if plain, err := url.PathUnescape(id); err == nil {
		return plain
	}
	return id
}

// refused says how many clients refuse a route as it is attached to some services, and why; empty: none does.
func refused(v cluster.RouteVerdict, services []string, list []refusal) string {
	type reason struct {
		text    string
		clients int
	}
	var reasons []reason
	clients := map[uint64]bool{}
	for _, r := range list {
		if !slices.Contains(services, r.service) || !v.Concerns(r.client, r.service) || clients[r.stream] {
			continue
		}
		clients[r.stream] = true
		if i := slices.IndexFunc(reasons, func(o reason) bool { return o.text == r.text }); i >= 0 {
			reasons[i].clients++
		} else {
			reasons = append(reasons, reason{r.text, 1})
		}
	}
	if len(reasons) == 0 {
		return ""
	}
	slices.SortFunc(reasons, func(a, b reason) int { return cmp.Or(b.clients-a.clients, strings.Compare(a.text, b.text)) })
	var said []string
	for _, r := range reasons[:min(len(reasons), maxTexts)] {
		said = append(said, fmt.Sprintf("\"%s\" (%d)", r.text, r.clients))
	}
	if more := len(reasons) - maxTexts; more > 0 {
		said = append(said, fmt.Sprintf("and %d more reasons", more))
	}
	atLeast := ""
	if len(list) == maxRefusals {
		atLeast = "at least "
	}
	who := fmt.Sprintf("%d clients of one replica, which keep the routes that they have", len(clients))
	if len(clients) == 1 {
		who = "1 client of one replica, which keeps the routes that it has"
	}
	return fmt.Sprintf("refused by %s%s: %s", atLeast, who, strings.Join(said, ", "))
}
