package cluster_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"path"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// object is one of an API server, in JSON.
type object = map[string]any

type named struct{ namespace, name string }

// apiServer answers lists and watches out of memory, as an http.RoundTripper, so that it runs in virtual time. The events of each watch
// come in their order, late by a random time.
type apiServer struct {
	mu      sync.Mutex
	random  *rand.Rand
	version int64
	// kinds has the API version and kind of each resource, objects what there is of it, by namespace and name.
	kinds   map[string]metav1.TypeMeta
	objects map[string]map[named]object
	events  []event
	// forgotten is the newest version of which a watch cannot go on (410 Gone). changed is closed and replaced when there is something new
	// for watches, and ended ends those that run.
	forgotten      int64
	changed, ended chan struct{}
	// forbidden are resources that nobody may read.
	forbidden []string
	// away has all requests fail, and silent has them wait, until it is closed.
	away   bool
	silent chan struct{}
}

// event is a change, of the version in its object.
type event struct {
	resource string
	version  int64
	kind     string
	object   object
}

func newAPIServer(random *rand.Rand) *apiServer {
	return &apiServer{
		random: random, version: 1, changed: make(chan struct{}), ended: make(chan struct{}), objects: map[string]map[named]object{},
		kinds: map[string]metav1.TypeMeta{
			"services": {APIVersion: "v1", Kind: "Service"}, "endpointslices": {APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
			"grpcroutes": {APIVersion: "gateway.networking.k8s.io/v1", Kind: "GRPCRoute"}, "httproutes": {APIVersion: "gateway.networking.k8s.io/v1", Kind: "HTTPRoute"},
			"referencegrants": {APIVersion: "gateway.networking.k8s.io/v1beta1", Kind: "ReferenceGrant"}, "meshhttproutes": {APIVersion: "dynxds.io/v1alpha1", Kind: "MeshHTTPRoute"},
			"nodes": {APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}, "namespaces": {APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
		},
	}
}

// set creates or replaces an object, and its namespace; nil deletes it.
func (a *apiServer) set(resource string, of named, o object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if in := (named{name: of.namespace}); of.namespace != "" && a.objects["namespaces"][in] == nil {
		a.setLocked("namespaces", in, object{})
	}
	a.setLocked(resource, of, o)
}

func (a *apiServer) setLocked(resource string, of named, o object) {
	if a.objects[resource] == nil {
		a.objects[resource] = map[named]object{}
	}
	before := a.objects[resource][of]
	kind := "MODIFIED"
	switch {
	case o == nil && before == nil:
		return
	case o == nil:
		kind = "DELETED"
		o = maps.Clone(before)
	case before == nil:
		kind = "ADDED"
	}
	a.version++
	meta := object{
		"namespace": of.namespace, "name": of.name, "resourceVersion": fmt.Sprint(a.version), "generation": a.version,
		"uid": fmt.Sprint(a.version), "creationTimestamp": time.Unix(a.version, 0).UTC().Format(time.RFC3339),
	}
	if was, ok := before["metadata"].(object); ok {
		meta["uid"], meta["creationTimestamp"] = was["uid"], was["creationTimestamp"]
	}
	given, _ := o["metadata"].(object)
	for _, field := range []string{"labels", "generation"} {
		if given[field] != nil {
			meta[field] = given[field]
		}
	}
	o["apiVersion"], o["kind"], o["metadata"] = a.kinds[resource].APIVersion, a.kinds[resource].Kind, meta
	if a.objects[resource][of] = o; kind == "DELETED" {
		delete(a.objects[resource], of)
	}
	a.events = append(a.events, event{resource, a.version, kind, o})
	close(a.changed)
	a.changed = make(chan struct{})
}

// end ends all watches. With forget they cannot go on from where they were.
func (a *apiServer) end(forget bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if forget {
		a.version++
		a.forgotten = a.version
	}
	close(a.ended)
	a.ended = make(chan struct{})
}

func (a *apiServer) setAway(away bool) {
	a.mu.Lock()
	a.away = away
	if a.silent != nil {
		close(a.silent)
		a.silent = nil
	}
	a.mu.Unlock()
	a.end(false)
}

// setSilent has the server accept requests, and answer none.
func (a *apiServer) setSilent() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.silent == nil {
		a.silent = make(chan struct{})
	}
}

// RoundTrip implements http.RoundTripper.
func (a *apiServer) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	silent := a.silent
	a.mu.Unlock()
	if silent != nil {
		select {
		case <-silent:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.away {
		return nil, errors.New("connection refused")
	}
	resource, query := path.Base(r.URL.Path), r.URL.Query()
	if resource == "version" {
		return answer(http.StatusOK, object{"gitVersion": "v1.36.3"}), nil
	}
	of, known := a.kinds[resource]
	switch from, _ := strconv.ParseInt(query.Get("resourceVersion"), 10, 64); {
	case slices.Contains(a.forbidden, resource):
		return refuse(http.StatusForbidden, metav1.StatusReasonForbidden), nil
	case !known:
		return refuse(http.StatusNotFound, metav1.StatusReasonNotFound), nil
	case query.Get("sendInitialEvents") != "":
		return refuse(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid), nil
	case query.Get("watch") != "" && from < a.forgotten && a.random.IntN(2) == 0:
		return answer(http.StatusOK, object{"type": "ERROR", "object": refusal(http.StatusGone, metav1.StatusReasonExpired)}), nil
	case query.Get("watch") != "" && from < a.forgotten:
		return refuse(http.StatusGone, metav1.StatusReasonExpired), nil
	case query.Get("watch") != "":
		body, w := io.Pipe()
		go a.watch(r.Context(), resource, from, w)
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}, nil
	}
	items := []object{}
	for _, o := range a.objects[resource] {
		items = append(items, o)
	}
	return answer(http.StatusOK, object{
		"apiVersion": of.APIVersion, "kind": of.Kind + "List", "items": items, "metadata": object{"resourceVersion": fmt.Sprint(a.version)},
	}), nil
}

// watch writes the events of a resource after a version.
func (a *apiServer) watch(ctx context.Context, resource string, from int64, w *io.PipeWriter) {
	defer w.Close()
	encoder := json.NewEncoder(w)
	a.mu.Lock()
	ended := a.ended
	a.mu.Unlock()
	for next := 0; ; {
		a.mu.Lock()
		pending, changed, late := a.events[next:], a.changed, time.Duration(a.random.IntN(20))*time.Millisecond
		next = len(a.events)
		a.mu.Unlock()
		for _, e := range pending {
			if e.resource != resource || e.version <= from {
				continue
			}
			select {
			case <-time.After(late):
			case <-ended:
				return
			case <-ctx.Done():
				return
			}
			if encoder.Encode(object{"type": e.kind, "object": e.object}) != nil {
				return
			}
		}
		select {
		case <-changed:
		case <-ended:
			return
		case <-ctx.Done():
			return
		}
	}
}

func answer(code int, body any) *http.Response {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text))}
}

func refuse(code int32, reason metav1.StatusReason) *http.Response {
	return answer(int(code), refusal(code, reason))
}

func refusal(code int32, reason metav1.StatusReason) metav1.Status {
	return metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: code, Reason: reason}
}
