package routestatus

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/cluster"
)

// events are those of routes. The recorder joins equal and similar ones, and bounds how many there are for one object.
type events struct {
	recorder record.EventRecorder
	// leftOut is what the last call of services was given.
	leftOut map[string]string
}

func newEvents(ctx context.Context, opts Options) (e *events, stop func()) {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: opts.Typed.CoreV1().Events("")})
	source := corev1.EventSource{Component: manager, Host: opts.Identity}
	return &events{recorder: broadcaster.NewRecorder(runtime.NewScheme(), source)}, broadcaster.Shutdown
}

// faults makes events of the faults in a status that were not in the one before.
func (e *events) faults(object *unstructured.Unstructured, before, after []any) {
	known := map[string]bool{}
	eachFault(before, func(reason, message string) { known[reason+message] = true })
	eachFault(after, func(reason, message string) {
		if !known[reason+message] {
			known[reason+message] = true // parents may have the same one
			e.recorder.Event(object, corev1.EventTypeWarning, reason, message)
		}
	})
}

// services makes events of why Services, or endpoints of theirs, are left out, unless that was so at the last call.
func (e *events) services(source *cluster.Source, leftOut map[string]string) {
	for object, why := range leftOut {
		name, isService := strings.CutPrefix(object, "Service/")
		if !isService || e.leftOut[object] == why {
			continue
		}
		of := &corev1.ObjectReference{APIVersion: "v1", Kind: "Service", UID: source.ServiceUID(name)}
		of.Namespace, of.Name, _ = strings.Cut(name, "/")
		e.recorder.Event(of, corev1.EventTypeWarning, "LeftOut", bounds.Text(why, maxText))
	}
	e.leftOut = leftOut
}

// eachFault calls yield with the faults in a list of conditions, or of parents with conditions.
func eachFault(list []any, yield func(reason, message string)) {
	for _, item := range list {
		c, _ := item.(map[string]any)
		if nested, ok := c["conditions"].([]any); ok && c["controllerName"] == cluster.Controller {
			eachFault(nested, yield)
		}
		if c["status"] == "False" || c["type"] == partiallyInvalid {
			reason, _ := c["reason"].(string)
			message, _ := c["message"].(string)
			yield(reason, message)
		}
	}
}

// reportRefusals makes events of what clients of this replica refuse, until the context ends.
func (e *events) reportRefusals(ctx context.Context, source *cluster.Source, refusals *Refusals) {
	var last map[types.UID]string
	for wait(ctx) {
		list, answered := refusals.current()
		verdicts, changed := source.Verdicts()
		if len(list) == 0 {
			changed = nil
		}
		now := map[types.UID]string{}
		for _, v := range verdicts {
			if len(list) == 0 {
				break
			}
			if text := refused(v, v.Services(), list); text != "" {
				if now[v.Object.GetUID()] = text; last[v.Object.GetUID()] != text {
					e.recorder.Event(v.Object, corev1.EventTypeWarning, "RefusedByClients", text)
				}
			}
		}
		last = now
		select {
		case <-ctx.Done():
			return
		case <-answered:
		case <-changed:
		}
	}
}
