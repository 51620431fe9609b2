// Package routestatus writes into the status of GRPCRoutes, HTTPRoutes and MeshHTTPRoutes what they amount to, and what clients say of
// them: one replica at a time, the one that holds a Lease. It also makes events of their faults.
package routestatus

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/cluster"
)

// manager is the name of the fields' manager.
const manager = "dynxds-kubernetes"

// LeaseName is the name of the Lease.
const LeaseName = "dynxds"

// Options are those of Run.
type Options struct {
	Typed   kubernetes.Interface
	Dynamic dynamic.Interface
	Source  *cluster.Source
	// Namespace is that of the Lease, and Identity the name of this replica.
	Namespace, Identity string
	// LeaseDuration is how long a Lease lasts that nobody renews.
	LeaseDuration time.Duration
	// Refusals are those of the clients of this replica.
	Refusals *Refusals
	Log      *slog.Logger
}

// Run writes status while this replica holds the Lease, and events of what clients of this replica refuse in any case, until the
// context ends.
func Run(ctx context.Context, opts Options) {
	events, stop := newEvents(ctx, opts)
	defer stop()
	var reporting sync.WaitGroup
	defer reporting.Wait()
	reporting.Go(func() { events.reportRefusals(ctx, opts.Source, opts.Refusals) })
	lock := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Name: LeaseName, Namespace: opts.Namespace}, Client: opts.Typed.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: opts.Identity},
	}
	for ctx.Err() == nil {
		// It returns when the Lease is lost, or the context ends.
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: lock, Name: LeaseName, ReleaseOnCancel: true,
			LeaseDuration: opts.LeaseDuration, RenewDeadline: opts.LeaseDuration * 2 / 3, RetryPeriod: opts.LeaseDuration / 6,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) { (&writer{opts, events}).run(ctx) },
				OnStoppedLeading: func() {},
			},
		})
	}
}

type writer struct {
	Options
	events *events
}

// retryAfter is the pause after the API server has refused a status.
const retryAfter = 2 * time.Second

// pause is that between two looks at all routes, so that many changes cost no more than some.
const pause = 200 * time.Millisecond

// wait pauses, and reports whether the context goes on.
func wait(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
		return true
	}
}

// run writes the status of all routes, and then that of those that change.
func (w *writer) run(ctx context.Context) {
	w.Log.Info("writing the status of routes, as this replica holds the Lease", "lease", w.Namespace+"/"+LeaseName)
	for wait(ctx) {
		verdicts, changed := w.Source.Verdicts()
		refusals, answered := w.Refusals.current()
		leftOut := w.Source.LeftOut()
		w.events.services(w.Source, leftOut)
		var retry <-chan time.Time
		for _, v := range verdicts {
			if why := leftOut[v.Object.GetKind()+"/"+v.Object.GetNamespace()+"/"+v.Object.GetName()]; why != "" && v.Faults == nil {
				v.Faults = errors.New(why)
			}
			if err := w.write(ctx, v, refusals); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
				w.Log.Warn("cannot write the status of a route", "route", v.Object.GetNamespace()+"/"+v.Object.GetName(), "error", err)
				retry = time.After(retryAfter)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-answered:
		case <-retry:
		}
	}
}

// write writes the status of one route, unless it is written already.
func (w *writer) write(ctx context.Context, v cluster.RouteVerdict, refusals []refusal) error {
	field, of := "parents", parents
	if v.Resource == cluster.MeshHTTPRoutes {
		field, of = "conditions", conditions
	}
	before, _, _ := unstructured.NestedSlice(v.Object.Object, "status", field)
	if v.Resource == cluster.MeshHTTPRoutes {
		before = slices.DeleteFunc(before, ofOthers)
	}
	after := of(v, before, refusals, time.Now())
	if reflect.DeepEqual(before, after) || len(before) == 0 && len(after) == 0 {
		return nil
	}
	// A list of parents is one value to server-side apply: it has the entries of other controllers too, so that it is refused if
	// the object is a newer one. Conditions of a MeshHTTPRoute are one value each.
	text, err := json.Marshal(map[string]any{
		"apiVersion": v.Object.GetAPIVersion(), "kind": v.Object.GetKind(),
		"metadata": map[string]any{"name": v.Object.GetName(), "namespace": v.Object.GetNamespace(), "resourceVersion": v.Object.GetResourceVersion()},
		"status":   map[string]any{field: after},
	})
	if err != nil {
		return err
	}
	force := true
	_, err = w.Dynamic.Resource(v.Resource).Namespace(v.Object.GetNamespace()).Patch(ctx, v.Object.GetName(), types.ApplyPatchType, text,
		metav1.PatchOptions{FieldManager: manager, Force: &force}, "status")
	if apierrors.IsConflict(err) {
		return nil // the newer object is on its way, and will be looked at
	}
	if err == nil {
		w.events.faults(v.Object, before, after)
	}
	return err
}

// parents returns the list of a status: the entries of others as they are, and those of this controller as they should be, each in
// its place.
func parents(v cluster.RouteVerdict, before []any, refusals []refusal, now time.Time) []any {
	list := []any{} // the API does not take null
	wanted := slices.Clone(v.Parents)
	for _, entry := range before {
		of, _ := entry.(map[string]any)
		if of["controllerName"] != cluster.Controller {
			list = append(list, entry)
			continue
		}
		i := slices.IndexFunc(wanted, func(p cluster.ParentVerdict) bool { return key(p.Ref) == key(of["parentRef"]) })
		if i < 0 {
			continue // it is no parent any more
		}
		old, _ := of["conditions"].([]any)
		list = append(list, entryOf(v, wanted[i], old, refusals, now))
		wanted = slices.Delete(wanted, i, i+1)
	}
	for _, p := range wanted {
		list = append(list, entryOf(v, p, nil, refusals, now))
	}
	return list
}

// entryOf returns the entry for one parent.
func entryOf(v cluster.RouteVerdict, p cluster.ParentVerdict, old []any, refusals []refusal, now time.Time) map[string]any {
	return map[string]any{"parentRef": p.Ref, "controllerName": cluster.Controller, "conditions": timed(v, p, old, refused(v, p.Services(), refusals), now)}
}

// ofOthers reports whether a condition of a MeshHTTPRoute is of another controller.
func ofOthers(condition any) bool {
	of, _ := condition.(map[string]any)
	switch of["type"] {
	case "Accepted", "ResolvedRefs", partiallyInvalid, Refused:
		return false
	}
	return true
}

// conditions returns those of a MeshHTTPRoute, which has no parents.
func conditions(v cluster.RouteVerdict, before []any, refusals []refusal, now time.Time) []any {
	return timed(v, cluster.ParentVerdict{}, before, refused(v, v.Services(), refusals), now)
}

// timed returns conditions with their times. Those that have the status that they had keep theirs.
func timed(v cluster.RouteVerdict, p cluster.ParentVerdict, old []any, refused string, now time.Time) (list []any) {
	for _, c := range ConditionsOf(v, p, refused) {
		c["observedGeneration"] = v.Object.GetGeneration()
		c["lastTransitionTime"] = now.UTC().Format(time.RFC3339)
		for _, o := range old {
			if o, _ := o.(map[string]any); o["type"] == c["type"] && o["status"] == c["status"] {
				c["lastTransitionTime"] = o["lastTransitionTime"]
			}
		}
		list = append(list, c)
	}
	return list
}

// key is equal for equal references.
func key(ref any) string {
	of, _ := ref.(map[string]any)
	text, _ := json.Marshal(of)
	return string(text)
}

// maxText bounds the bytes of a message; the API allows 32 KiB.
const maxText = 1024

// partiallyInvalid is the condition of routes of which some rules have faults. Others do not have it.
const partiallyInvalid = "PartiallyInvalid"

// Refused is the condition of routes that clients refuse. Others do not have it.
const Refused = "dynxds.io/RefusedByClients"

// ConditionsOf returns the conditions of a route for one parent, without times; the parent of a MeshHTTPRoute is empty. refused says
// what clients say against it.
func ConditionsOf(v cluster.RouteVerdict, p cluster.ParentVerdict, refused string) []map[string]any {
	condition := func(kind, status, reason, message string) map[string]any {
		return map[string]any{"type": kind, "status": status, "reason": reason, "message": bounds.Text(message, maxText)}
	}
	accepted := condition("Accepted", "True", "Accepted", "the route is served")
	if len(v.Ignored) > 0 {
		accepted["message"] = bounds.Text("the route is served, without fields that have no effect: "+strings.Join(v.Ignored, "; "), maxText)
	}
	switch {
	case v.Faults != nil && !v.InForce:
		accepted = condition("Accepted", "False", "UnsupportedValue", v.Faults.Error())
	case p.Missing != "":
		accepted = condition("Accepted", "False", "NoMatchingParent", p.Missing)
	case p.Conflict != "":
		accepted = condition("Accepted", "False", "Conflicted", p.Conflict)
	}
	resolved := condition("ResolvedRefs", "True", "ResolvedRefs", "all backends are there")
	switch {
	case len(v.InvalidKind) > 0:
		resolved = condition("ResolvedRefs", "False", "InvalidKind", strings.Join(slices.Sorted(slices.Values(v.InvalidKind)), "; "))
	case len(v.NotPermitted) > 0:
		resolved = condition("ResolvedRefs", "False", "RefNotPermitted",
			"no ReferenceGrant lets the route use "+strings.Join(slices.Sorted(slices.Values(v.NotPermitted)), ", "))
	case len(v.NotFound) > 0:
		resolved = condition("ResolvedRefs", "False", "BackendNotFound", strings.Join(slices.Sorted(slices.Values(v.NotFound)), "; "))
	}
	list := []map[string]any{accepted, resolved}
	if v.Faults != nil && accepted["status"] == "True" {
		list = append(list, condition(partiallyInvalid, "True", "UnsupportedValue", "Dropped Rule: requests for the rules with errors fail: "+v.Faults.Error()))
	}
	if refused != "" {
		list = append(list, condition(Refused, "True", "Refused", refused))
	}
	return list
}
