package xdsclient

import (
	"cmp"
	"fmt"
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

// ignoredLog logs which fields of the resources in use are ignored: each field of a type once, with the first resource that
// has it; at warning level fields that matter, at info level others. It works beside the updates, on a goroutine
// that runs while there is something to examine.
type ignoredLog struct {
	client *XDSClient
	// said has the fields that were logged. Only the goroutine uses it.
	said map[ignoredField]struct{}

	// The fields below are guarded by XDSClient.mu.

	// running says that a goroutine works on the queue.
	running bool
	// queue has the cache entries with a new version.
	queue map[*resource]struct{}
}

// ignoredField is a path without indexes in resources of a type.
type ignoredField struct {
	typ  *ResourceType
	path string
}

// maxIgnoredFields bounds the fields that are logged: a path may have keys, which a peer chooses.
const maxIgnoredFields = 1000

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
	for _, m := range r.members {
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
		for _, version := range batch {
			l.report(version)
		}
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
	key     resourceKey
	payload *payload // nil: the resource was removed
}

// takeQueue empties the queue. If it was empty, the goroutine has to end.
func (l *ignoredLog) takeQueue() []examined {
	l.client.mu.Lock()
	defer l.client.mu.Unlock()
	batch := make([]examined, 0, len(l.queue))
	for r := range l.queue {
		batch = append(batch, examined{r.key, r.payload})
	}
	l.queue = nil
	if len(batch) == 0 {
		l.running = false
	}
	slices.SortFunc(batch, func(a, b examined) int {
		return cmp.Or(strings.Compare(a.key.name, b.key.name), strings.Compare(a.key.typ.Name, b.key.typ.Name), strings.Compare(a.key.variant, b.key.variant))
	})
	return batch
}

// index is a position in a list, in a path.
var index = regexp.MustCompile(`\[\d+\]`)

// report examines a resource, without the lock, and logs ignored fields that it has not logged yet.
func (l *ignoredLog) report(version examined) {
	typ := version.key.typ
	if version.payload == nil {
		return
	}
	var warnings, others []string
	list := typ.ignoredIn(version.payload.raw, version.payload.value, l.client.ctx.Done())
	for _, part := range list {
		field := ignoredField{typ, index.ReplaceAllString(part.Path, "")}
		if _, said := l.said[field]; said || len(l.said) == maxIgnoredFields {
			continue
		}
		if l.said == nil {
			l.said = make(map[ignoredField]struct{})
		}
		l.said[field] = struct{}{}
		if part.Severity == SeverityWarning {
			warnings = append(warnings, part.String())
		} else {
			others = append(others, part.String())
		}
	}
	const format = "xDS %s %q is in use without: %s"
	if len(warnings) > 0 {
		logger.Warningf(format, typ.Name, version.key.name, strings.Join(warnings, "; "))
	}
	if len(others) > 0 {
		logger.Infof(format, typ.Name, version.key.name, strings.Join(others, "; "))
	}
}
