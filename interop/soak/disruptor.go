package soak

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/meshtest"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// pending ends a disruption at a time.
type pending struct {
	due time.Time
	do  func()
}

// later ends a disruption after a while.
func (r *run) later(undo func()) {
	r.undo = append(r.undo, pending{time.Now().Add(r.lasts), undo})
}

// undoUntil ends the disruptions that are due until a time, and returns whether there was one.
func (r *run) undoUntil(then time.Time) bool {
	all := r.undo
	r.undo = slices.DeleteFunc(slices.Clone(all), func(p pending) bool { return !p.due.After(then) })
	for _, p := range all {
		if !p.due.After(then) {
			p.do()
		}
	}
	return len(r.undo) != len(all)
}

// undoAll ends all disruptions.
func (r *run) undoAll() { r.undoUntil(time.Now().Add(time.Hour)) }

// stopBackend stops a backend for a while, unless a client may have a cluster that
// would have none left.
func (r *run) stopBackend(how func(*backend)) bool {
	i := r.IntN(backends)
	if !slices.Contains(r.sure, i) {
		return false
	}
	sure := slices.DeleteFunc(slices.Clone(r.sure), func(other int) bool { return other == i })
	for _, c := range r.history.live() {
		for _, s := range c.clusters {
			for _, p := range s.placements {
				if !slices.ContainsFunc(p.backends(), func(b int) bool { return slices.Contains(sure, b) }) {
					return false
				}
			}
		}
	}
	r.sure = sure
	b := r.backends[i]
	how(b)
	r.later(func() { r.must(b.Restart()) })
	return true
}

// disrupt disrupts a server or a host for a while, until what do returns is called. Each has one disruption at a time.
func (r *run) disrupt(what any, do func() (undo func())) bool {
	if r.disrupted[what] {
		return false
	}
	r.disrupted[what] = true
	undo := do()
	r.later(func() {
		undo()
		delete(r.disrupted, what)
	})
	return true
}

// stop stops a server for a while.
func (r *run) stop(server interface{ Restart() error }, how func()) bool {
	return r.disrupt(server, func() func() {
		how()
		return func() { r.must(server.Restart()) }
	})
}

// lie has a control plane send wrong responses for a while.
func (r *run) lie(server *meshtest.Server, do, undo func()) bool {
	return r.disrupt(server, func() func() {
		do()
		return func() {
			undo()
			// The server does not resend correct resources by itself.
			server.BreakStreams(errOnPurpose)
		}
	})
}

// errOnPurpose ends streams.
var errOnPurpose = errors.New("on purpose")

// spoil changes a few resources in the store that all clients use, and restores them
// later. Of the DPDS resources it is the one whose constraints clients keep.
func (r *run) spoil(f func(tx *controlplane.Tx, k key)) bool {
	all := r.newest.allKeys()
	all[key{dynparam.MapTypeURL, keepsDPDS.resource()}] = true
	keys := slices.SortedFunc(maps.Keys(all), compare)
	r.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	keys = keys[:1+r.IntN(len(keys))]
	return r.lie(r.control, func() {
		r.update(func(tx *controlplane.Tx) {
			for _, k := range keys {
				f(tx, k)
			}
		})
	}, func() { r.store(r.newest) })
}

func (r *run) putErrors() bool {
	codes := []codes.Code{codes.NotFound, codes.PermissionDenied, codes.Internal, codes.Unavailable, codes.Code(99)}
	code := codes[r.IntN(len(codes))]
	return r.spoil(func(tx *controlplane.Tx, k key) {
		tx.SetError(k.typeURL, k.name, status.New(code, fmt.Sprintf("%s, on purpose", k.name)))
	})
}

func compare(a, b key) int {
	return strings.Compare(a.typeURL+" "+a.name, b.typeURL+" "+b.name)
}
