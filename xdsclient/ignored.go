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
)

// Ignored is a part of a resource that this client does not use: a populated field that it
// does not act on, or something that the decoder left out of the value.
type Ignored struct {
	// Path is the proto field path from the resource, for example
	// "virtual_hosts[2].routes[0].stat_prefix".
	Path string
	// Reason says why.
	Reason string
	// Severity says whether it matters.
	Severity Severity
	// Places is the number of places in the resource that are ignored for this reason; Path
	// is the first of them. 0 and 1 both mean one.
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

// ignoredIn asks the type which parts of a resource are ignored. It recovers from a panic of the type.
func (t *ResourceType) ignoredIn(raw []byte, value any, done <-chan struct{}) (list []Ignored) {
	if t.Ignored == nil {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			logger.Errorf("xDS %s: ResourceType.Ignored panicked: %v\n%s", t.Name, p, debug.Stack())
			list = nil
		}
	}()
	return t.Ignored(&anypb.Any{TypeUrl: t.TypeURL, Value: raw}, value, done)
}

// ignoredRest is the least time between two examinations of new versions, so that the
// cost does not grow with the rate of pushes.
const ignoredRest = 10 * time.Second

// ignoredLog logs which fields of the resources in use are ignored: at warning level fields
// that matter, at info level others; once for each resource, when it is first accepted,
// and again only when other fields are ignored than before. Resources with the same fields
// share a line. It works beside the updates, on a goroutine that runs while there is something
// to examine, and keeps one number for each cache entry.
type ignoredLog struct {
	client *XDSClient

	// The fields below are guarded by XDSClient.mu.

	// running says that a goroutine works on the queue.
	running bool
	// queue has the cache entries with a new version.
	queue map[*resource]struct{}
}

// add queues a resource with a new version. The caller holds XDSClient.mu.
func (l *ignoredLog) add(r *resource) {
	if r.key.typ.Ignored == nil || l.client.ctx.Err() != nil {
		return
	}
	if l.queue == nil {
		l.queue = make(map[*resource]struct{})
	}
	l.queue[r] = struct{}{}
	if !l.running {
		l.running = true
		l.client.running.Go(l.run)
	}
}

// remove forgets an entry that is no longer in the cache. The caller holds XDSClient.mu.
func (l *ignoredLog) remove(r *resource) {
	delete(l.queue, r)
	for _, m := range r.asCollection.entries() {
		delete(l.queue, m)
	}
}

// run is the goroutine of the log.
func (l *ignoredLog) run() {
	for {
		batch := l.takeQueue()
		if len(batch) == 0 {
			return
		}
		l.report(batch)
		rest := time.NewTimer(ignoredRest)
		select {
		case <-rest.C:
		case <-l.client.ctx.Done():
			rest.Stop()
			return
		}
	}
}

// examined is a version of a resource that the ignoredLog examines.
type examined struct {
	resource *resource
	payload  *payload
}

// takeQueue empties the queue. If it was empty, the goroutine has to end.
func (l *ignoredLog) takeQueue() []examined {
	l.client.mu.Lock()
	defer l.client.mu.Unlock()
	batch := make([]examined, 0, len(l.queue))
	for r := range l.queue {
		batch = append(batch, examined{r, r.payload})
	}
	l.queue = nil
	if len(batch) == 0 {
		l.running = false
	}
	slices.SortFunc(batch, func(a, b examined) int {
		x, y := &a.resource.key, &b.resource.key
		return cmp.Or(strings.Compare(x.name, y.name), strings.Compare(x.typ.Name, y.typ.Name), strings.Compare(x.variant, y.variant))
	})
	return batch
}

// ignoredGroup has the resources of a type that the same fields are ignored in.
type ignoredGroup struct {
	typ   *ResourceType
	first string // the name of one of them
	count int
	list  []Ignored
}

// report examines resources, without the lock, and logs ignored fields that it has not logged yet.
func (l *ignoredLog) report(batch []examined) {
	type key struct {
		typ  *ResourceType
		said uint32
	}
	groups := make(map[key]*ignoredGroup)
	var order []*ignoredGroup
	for _, version := range batch {
		if version.payload == nil {
			continue // The resource was removed.
		}
		typ := version.resource.key.typ
		list := typ.ignoredIn(version.payload.raw, version.payload.value, l.client.ctx.Done())
		if l.client.ctx.Err() != nil {
			return // The list may not be complete.
		}
		said := l.fieldsOf(list)
		if !l.markSaid(version.resource, said) {
			continue
		}
		g := groups[key{typ, said}]
		if g == nil {
			g = &ignoredGroup{typ: typ, first: version.resource.key.name, list: list}
			groups[key{typ, said}] = g
			order = append(order, g)
		}
		g.count++
	}
	for _, g := range order {
		g.log()
	}
}

// markSaid notes what the log says of a resource, and reports whether there is something to
// log that it has not said before.
func (l *ignoredLog) markSaid(r *resource, said uint32) bool {
	l.client.mu.Lock()
	defer l.client.mu.Unlock()
	isNew := said != 0 && r.saidIgnored != said
	r.saidIgnored = said
	return isNew
}

func (g *ignoredGroup) log() {
	const format = "xDS %s %q%s is in use without: %s"
	others := ""
	if g.count > 1 {
		others = fmt.Sprintf(" (and %d more likewise)", g.count-1)
	}
	if text := g.text(SeverityWarning); text != "" {
		logger.Warningf(format, g.typ.Name, g.first, others, text)
	}
	if text := g.text(SeverityInfo); text != "" {
		logger.Infof(format, g.typ.Name, g.first, others, text)
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
	return strings.Join(parts, "; ")
}

// index is a position in a list, in a path.
var index = regexp.MustCompile(`\[\d+\]`)

// fieldsOf returns a hash that is equal for lists of the same fields, wherever in the resource
// they are, and 0 for no fields.
func (l *ignoredLog) fieldsOf(list []Ignored) uint32 {
	if len(list) == 0 {
		return 0
	}
	fields := make([]string, len(list))
	for i, part := range list {
		fields[i] = index.ReplaceAllString(part.Path, "")
	}
	slices.Sort(fields)
	return max(1, uint32(maphash.String(l.client.seed, strings.Join(slices.Compact(fields), "\n"))))
}
