// Package routestatus writes into the status of GRPCRoutes, HTTPRoutes and MeshHTTPRoutes what they amount to, and what clients say of
// them: one replica at a time, the one that holds a Lease. It also makes events of their errors.
package routestatus

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/retries"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/cluster"
)

// manager is the name of the fields' manager.
const manager = "dynxds-kubernetes"

// LeaseName is the name of the Lease.
const LeaseName = "dynxds"

// Options are those of a Writer.
type Options struct {
	Typed   kubernetes.Interface
	Dynamic dynamic.Interface
	Source  *cluster.Source
	// Namespace is that of the Lease, and Identity the name of this replica.
	Namespace, Identity string
	// LeaseDuration is how long a Lease lasts that nobody renews.
	LeaseDuration time.Duration
	Log           *slog.Logger
}

// Writer writes status and events, in one goroutine. OnNACK and OnLeftOut are safe for concurrent use.
type Writer struct {
	Options
	// noted has a value when clients have rejected something, or something else is left out.
	noted chan struct{}
	// server has the clients of this replica: it says which reject routes (NACK). It is nil before the first NACK.
	server atomic.Pointer[controlplane.Server]
	// leftOut has why objects, as KIND/NAMESPACE/NAME, are left out of what was published last, or parts of them.
	leftOut atomic.Pointer[map[string]string]
	// terms has a context when this replica gets the Lease, which ends when it loses it.
	terms chan context.Context
	// recorder joins equal and similar events, and bounds how many there are for one object.
	recorder record.EventRecorder
	// said has what the last look at all routes has made events of, by object and reason.
	said map[string]string
}

// New returns a Writer that does not run yet.
func New(opts Options) *Writer {
	w := &Writer{Options: opts, noted: make(chan struct{}, 1), terms: make(chan context.Context)}
	w.leftOut.Store(&map[string]string{})
	return w
}

// Run writes status while this replica holds the Lease, and events of what clients of this replica refuse in any case, until the
// context ends.
func (w *Writer) Run(ctx context.Context) {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: w.Typed.CoreV1().Events("")})
	defer broadcaster.Shutdown()
	w.recorder = broadcaster.NewRecorder(runtime.NewScheme(), corev1.EventSource{Component: manager, Host: w.Identity})
	var writing sync.WaitGroup
	defer writing.Wait()
	writing.Go(func() { w.run(ctx) })
	lock := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Name: LeaseName, Namespace: w.Namespace}, Client: w.Typed.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: w.Identity},
	}
	for ctx.Err() == nil {
		// It returns when the Lease is lost, or the context ends.
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: lock, Name: LeaseName, ReleaseOnCancel: true,
			LeaseDuration: w.LeaseDuration, RenewDeadline: w.LeaseDuration * 2 / 3, RetryPeriod: w.LeaseDuration / 6,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(term context.Context) {
					select {
					case w.terms <- term:
					case <-term.Done():
					}
				},
				OnStoppedLeading: func() {},
			},
		})
	}
}

// pause is that between two looks at all routes, so that many changes cost no more than some. again is after how long there is another
// look if the API server has refused a status, or clients refuse routes: these may cease to.
const pause, again = 200 * time.Millisecond, 2 * time.Second

// run looks at all routes, and again when something has changed, or may have.
func (w *Writer) run(ctx context.Context) {
	term, none := context.WithCancel(ctx)
	none()
	for {
		if retries.Wait(ctx, pause) != nil {
			return
		}
		routes, changed := w.Source.Routes()
		refusals := w.refusals()
		noted, later := w.noted, (<-chan time.Time)(nil)
		if failed := w.look(term, routes, refusals); failed || len(refusals) > 0 {
			noted, later = nil, time.After(again)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-noted:
		case <-later:
		case term = <-w.terms:
			w.Log.Info("writing the status of routes, as this replica holds the Lease", "lease", w.Namespace+"/"+LeaseName)
		}
	}
}

// look makes events of what clients refuse, and until the term ends, the status of all routes and events of what is left out. failed says
// that the API server has refused a status.
func (w *Writer) look(term context.Context, routes []*cluster.Route, refusals []refusal) (failed bool) {
	now := map[string]string{}
	say := func(of runtime.Object, key, reason, text string) {
		key = reason + " " + key
		if now[key] = text; w.said[key] != text {
			w.recorder.Event(of, corev1.EventTypeWarning, reason, bounds.Text(text, maxText))
		}
	}
	leftOut := *w.leftOut.Load()
	for _, r := range routes {
		if text := refused(r, r.Parents, refusals); text != "" {
			say(r.Object, string(r.Object.GetUID()), "RefusedByClients", text)
		}
		if term.Err() != nil {
			continue
		}
		if why := leftOut[r.Object.GetKind()+"/"+r.Name()]; why != "" && r.Faults == nil {
			less := *r
			less.LeftOut = why
			r = &less
		}
		if err := w.write(term, r, refusals); err != nil && term.Err() == nil && !apierrors.IsNotFound(err) {
			key := "status " + string(r.Object.GetUID())
			if now[key] = err.Error(); w.said[key] != now[key] {
				w.Log.Warn("cannot write the status of a route", "route", r.Name(), "error", err)
			}
			failed = failed || err != errFull
		}
	}
	for object, why := range leftOut {
		if name, isService := strings.CutPrefix(object, "Service/"); isService && term.Err() == nil {
			of := &corev1.ObjectReference{APIVersion: "v1", Kind: "Service", UID: w.Source.ServiceUID(name)}
			of.Namespace, of.Name, _ = strings.Cut(name, "/")
			say(of, name, "LeftOut", why)
		}
	}
	w.said = now
	return failed
}

// write writes the status of one route, unless it is written already.
func (w *Writer) write(ctx context.Context, r *cluster.Route, refusals []refusal) error {
	field, list := r.Status()
	before, others := []any{}, []any{} // the API does not take null
	for _, item := range list {
		// Of this controller are the entry of a parent, or a condition of a MeshHTTPRoute.
		of, _ := item.(map[string]any)
		if of["controllerName"] == cluster.Controller || slices.Contains([]any{"Accepted", "ResolvedRefs", partiallyInvalid, Refused}, of["type"]) {
			before = append(before, item)
		} else {
			others = append(others, item)
		}
	}
	after := own(r, field, before, refusals, time.Now())
	if reflect.DeepEqual(before, after) {
		return nil
	}
	// A list of parents is one value to server-side apply: it has the entries of other controllers too, so that it is refused if
	// the object is a newer one. Conditions of a MeshHTTPRoute are one value each.
	status := after
	if field == "parents" {
		if status = append(others, after...); len(status) > 32 {
			return errFull
		}
	}
	_, err := w.Dynamic.Resource(r.Resource()).Namespace(r.Object.GetNamespace()).ApplyStatus(ctx, r.Object.GetName(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": r.Object.GetAPIVersion(), "kind": r.Object.GetKind(),
		"metadata": map[string]any{"name": r.Object.GetName(), "namespace": r.Object.GetNamespace(), "resourceVersion": r.Object.GetResourceVersion()},
		"status":   map[string]any{field: status},
	}}, metav1.ApplyOptions{FieldManager: manager, Force: true})
	if apierrors.IsConflict(err) {
		return nil // the newer object is on its way, and will be looked at
	}
	if err == nil {
		w.report(r.Object, before, after)
	}
	return err
}

// errFull is the error of a route of which others have written the status, so that there is no room.
var errFull = errors.New("status.parents would have more than 32 entries, which the API does not allow; delete those of controllers that are gone")

// report makes events of the errors in a status that were not in the one before.
func (w *Writer) report(object *unstructured.Unstructured, before, after []any) {
	known := map[string]bool{}
	for i, status := range [][]any{before, after} {
		for _, c := range cluster.Conditions(status) {
			reason, _ := c["reason"].(string)
			message, _ := c["message"].(string)
			if c["status"] != "False" && c["type"] != partiallyInvalid || known[reason+message] {
				continue
			}
			known[reason+message] = true // parents may have the same one
			if i > 0 {
				w.recorder.Event(object, corev1.EventTypeWarning, reason, message)
			}
		}
	}
}

// own returns what this controller writes into a field of the status, of which before is there.
func own(r *cluster.Route, field string, before []any, refusals []refusal, now time.Time) []any {
	if field == "conditions" {
		return timed(r, r.Parents[0], before, refusals, now)
	}
	list := []any{}
	for _, p := range r.Parents {
		var old []any
		for _, item := range before {
			if of, _ := item.(map[string]any); reflect.DeepEqual(any(p.Ref), of["parentRef"]) {
				old, _ = of["conditions"].([]any)
			}
		}
		list = append(list, map[string]any{"parentRef": p.Ref, "controllerName": cluster.Controller, "conditions": timed(r, p, old, refusals, now)})
	}
	return list
}

// timed returns conditions with their times. Those that have the status that they had keep theirs.
func timed(r *cluster.Route, p cluster.Parent, old []any, refusals []refusal, now time.Time) (list []any) {
	for _, c := range ConditionsOf(r, p, refused(r, []cluster.Parent{p}, refusals)) {
		c["observedGeneration"] = r.Object.GetGeneration()
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

// maxText bounds the bytes of a message; the API allows 32 KiB.
const maxText = 1024

// partiallyInvalid is the condition of routes of which some rules have errors. Others do not have it.
const partiallyInvalid = "PartiallyInvalid"

// Refused is the condition of routes that clients refuse. Others do not have it.
const Refused = "dynxds.io/RefusedByClients"

// ConditionsOf returns the conditions of a route for one parent, without times. refused says what clients say against it.
func ConditionsOf(r *cluster.Route, p cluster.Parent, refused string) []map[string]any {
	condition := func(kind, status, reason, message string) map[string]any {
		return map[string]any{"type": kind, "status": status, "reason": reason, "message": bounds.Text(message, maxText)}
	}
	accepted := condition("Accepted", "True", "Accepted", "the route is served")
	if len(r.Ignored) > 0 {
		accepted["message"] = bounds.Text("the route is served, without fields that have no effect: "+strings.Join(r.Ignored, "; "), maxText)
	}
	invalid := r.LeftOut
	if r.Faults != nil {
		invalid = "Dropped Rule: requests for the rules with errors fail: " + r.Faults.Error()
	}
	switch {
	case r.Faults != nil && !r.InForce:
		accepted = condition("Accepted", "False", "UnsupportedValue", r.Faults.Error())
	case p.Missing != "":
		accepted = condition("Accepted", "False", "NoMatchingParent", p.Missing)
	case p.Conflict != "":
		accepted = condition("Accepted", "False", "Conflicted", p.Conflict)
	case r.LeftOut != "":
		accepted["message"] = "the route is read; PartiallyInvalid says what of it is not served"
	}
	resolved := condition("ResolvedRefs", "True", "ResolvedRefs", "all backends are there")
	for _, reason := range cluster.UnresolvedReasons {
		if texts := r.Unresolved[reason]; len(texts) > 0 {
			resolved = condition("ResolvedRefs", "False", reason, strings.Join(slices.Sorted(slices.Values(texts)), "; "))
			break
		}
	}
	list := []map[string]any{accepted, resolved}
	if invalid != "" && accepted["status"] == "True" {
		list = append(list, condition(partiallyInvalid, "True", "UnsupportedValue", invalid))
	}
	if refused != "" {
		list = append(list, condition(Refused, "True", "Refused", refused))
	}
	return list
}
