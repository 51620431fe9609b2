package xdsclient

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/xdsclient/internal/transport"
)

// Ignored is a part of a resource that this client does without: a populated field
// that it does not act on, or something that the decoder left out of the value.
type Ignored struct {
	// Path is the proto field path from the resource, for example
	// "virtual_hosts[2].routes[0].stat_prefix".
	Path string
	// Reason says why.
	Reason string
	// Severity says whether it matters.
	Severity Severity
	// Places is the number of places in the resource of which the same is to be said;
	// Path is the first of them. 0 and 1 both mean one.
	Places int
}

// String returns the path, the reason, and the number of places if they are several,
// on one line.
func (i Ignored) String() string {
	text := i.Path + ": " + i.Reason
	if i.Places > 1 {
		text += fmt.Sprintf(" (at %d places)", i.Places)
	}
	return text
}

// Severity says how much it matters that something is ignored.
type Severity int

const (
	// SeverityInfo: RPCs go where the resource says, under the security it says.
	SeverityInfo Severity = iota
	// SeverityWarning: connections may have less security than the resource asks for,
	// or RPCs may go elsewhere than it says.
	SeverityWarning
)

// String returns "info" or "warning".
func (s Severity) String() string {
	if s == SeverityWarning {
		return "warning"
	}
	return "info"
}

// ignoredIn asks the type what of a resource is ignored. A panic of the type is not
// the caller's.
func (t *ResourceType) ignoredIn(raw []byte, value any) (list []Ignored) {
	if t.Ignored == nil {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			logger.Errorf("xDS %s: ResourceType.Ignored panicked: %v\n%s", t.Name, p, debug.Stack())
			list = nil
		}
	}()
	return t.Ignored(&anypb.Any{TypeUrl: t.TypeURL, Value: raw}, value)
}

const (
	// ignoredRest is the least time between two looks at what resources have
	// that is ignored. So the cost does not grow with the rate of pushes.
	ignoredRest = 10 * time.Second
	// maxIgnoredText bounds what a line of the log says of one resource, in bytes.
	maxIgnoredText = 2 << 10
)

// ignoredLog says in the log what of the resources in use is ignored, at warning level
// what matters and at info level the rest: once for each resource, when it is first taken, and again only when other
// fields are ignored than before. Resources of which the same is to be said share a
// line. It works beside the updates, on a goroutine that lives while there is
// something to look at, and remembers one number for each cache entry.
//
// Guarded by XDSClient.mu.
type ignoredLog struct {
	state ignoredLogState
	// queue has the entries of the cache to look at.
	queue map[*resource]struct{}
}

type ignoredLogState int

const (
	// ignoredLogIdle: there is no goroutine and no queue.
	ignoredLogIdle ignoredLogState = iota
	// ignoredLogRunning: a goroutine takes care of the queue.
	ignoredLogRunning
)

// noteIgnored has the ignoredLog look at a new version of a resource.
func (c *XDSClient) noteIgnored(r *resource) {
	if r.key.typ.Ignored == nil || c.ctx.Err() != nil {
		return
	}
	if c.ignored.queue == nil {
		c.ignored.queue = make(map[*resource]struct{})
	}
	c.ignored.queue[r] = struct{}{}
	if c.ignored.state == ignoredLogIdle {
		c.ignored.state = ignoredLogRunning
		c.running.Go(c.logIgnored)
	}
}

// leftCache has the ignoredLog look no more at an entry that is not in the cache any
// more.
func (c *XDSClient) leftCache(r *resource) {
	delete(c.ignored.queue, r)
	for _, m := range r.members {
		delete(c.ignored.queue, m)
	}
}

// logIgnored is the goroutine of the ignoredLog.
func (c *XDSClient) logIgnored() {
	for {
		batch := c.takeIgnored()
		if len(batch) == 0 {
			return
		}
		c.report(batch)
		rest := time.NewTimer(ignoredRest)
		select {
		case <-rest.C:
		case <-c.ctx.Done():
			rest.Stop()
			return
		}
	}
}

// lookedAt is a version of a resource that the ignoredLog looks at.
type lookedAt struct {
	resource *resource
	payload  *payload
}

// takeIgnored empties the queue. If there is nothing in it the goroutine is to end.
func (c *XDSClient) takeIgnored() []lookedAt {
	c.mu.Lock()
	defer c.mu.Unlock()
	batch := make([]lookedAt, 0, len(c.ignored.queue))
	for r := range c.ignored.queue {
		batch = append(batch, lookedAt{r, r.payload})
	}
	c.ignored.queue = nil
	if len(batch) == 0 {
		c.ignored.state = ignoredLogIdle
	}
	slices.SortFunc(batch, func(a, b lookedAt) int {
		x, y := &a.resource.key, &b.resource.key
		return cmp.Or(strings.Compare(x.name, y.name), strings.Compare(x.typ.Name, y.typ.Name), strings.Compare(x.variant, y.variant))
	})
	return batch
}

// ignoredGroup is the resources of a type of which the same is to be said.
type ignoredGroup struct {
	typ   *ResourceType
	first string // the name of one of them
	count int
	list  []Ignored
}

// report looks at resources, without the lock, and says what is new.
func (c *XDSClient) report(batch []lookedAt) {
	type key struct {
		typ  *ResourceType
		said uint64
	}
	groups := make(map[key]*ignoredGroup)
	var order []*ignoredGroup
	for _, l := range batch {
		if l.payload == nil || c.ctx.Err() != nil {
			continue // It is gone again, or the client is.
		}
		typ := l.resource.key.typ
		list := typ.ignoredIn(l.payload.raw, l.payload.value)
		said := c.fieldsOf(list)
		if !c.markSaid(l.resource, said) {
			continue
		}
		g := groups[key{typ, said}]
		if g == nil {
			g = &ignoredGroup{typ: typ, first: l.resource.key.name, list: list}
			groups[key{typ, said}] = g
			order = append(order, g)
		}
		g.count++
	}
	for _, g := range order {
		g.log()
	}
}

// markSaid notes what the log says of a resource, and reports whether that is
// anything, and something new.
func (c *XDSClient) markSaid(r *resource, said uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	news := said != 0 && r.saidIgnored != said
	r.saidIgnored = said
	return news
}

func (g *ignoredGroup) log() {
	if text := g.text(SeverityWarning); text != "" {
		logger.Warning(text)
	}
	if text := g.text(SeverityInfo); text != "" {
		logger.Info(text)
	}
}

// text returns "" if there is nothing of this severity.
func (g *ignoredGroup) text(severity Severity) string {
	var parts []string
	for _, part := range g.list {
		if part.Severity == severity {
			parts = append(parts, part.String())
		}
	}
	if len(parts) == 0 {
		return ""
	}
	others := ""
	if g.count > 1 {
		others = fmt.Sprintf(" (and %d more likewise)", g.count-1)
	}
	return fmt.Sprintf("xDS %s %q%s is in use without: %s", g.typ.Name, g.first, others, transport.Cut(strings.Join(parts, "; "), maxIgnoredText))
}

// index is a position in a list, in a path.
var index = regexp.MustCompile(`\[\d+\]`)

// fieldsOf returns a number that is equal for lists of the same fields, wherever in
// the resource they are, and 0 for no fields.
func (c *XDSClient) fieldsOf(list []Ignored) uint64 {
	if len(list) == 0 {
		return 0
	}
	fields := make([]string, len(list))
	for i, part := range list {
		fields[i] = index.ReplaceAllString(part.Path, "")
	}
	slices.Sort(fields)
	return max(1, maphash.String(c.seed, strings.Join(slices.Compact(fields), "\n")))
}
