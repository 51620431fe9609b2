package cluster

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// ClosedLabel is the label of a namespace whose services are for its own clients alone; the value is "true".
const ClosedLabel = "dynxds.io/closed"

// places are the nodes and the namespaces of the cluster, of which only labels are known. It is safe for concurrent use.
type places struct{ nodes, namespaces cache.SharedIndexInformer }

// newPlaces adds the informers. Without permission to read nodes, zones are not known.
func newPlaces(s *Source) *places {
	c := s.opts.Clients
	p := &places{
		nodes:      s.watch.tolerated("nodes", c.metadataOf(corev1.SchemeGroupVersion.WithResource("nodes")), &metav1.PartialObjectMetadata{}),
		namespaces: s.watch.informer("namespaces", c.metadataOf(corev1.SchemeGroupVersion.WithResource("namespaces")), &metav1.PartialObjectMetadata{}, nil),
	}
	// It fails only for an informer that was stopped.
	_, _ = p.namespaces.AddEventHandler(cache.FilteringResourceEventHandler{
		FilterFunc: func(object any) bool {
			if last, missed := object.(cache.DeletedFinalStateUnknown); missed {
				object = last.Obj
			}
			return object.(*metav1.PartialObjectMetadata).Labels[ClosedLabel] == "true"
		},
		// An update that changes the label is one of these two.
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { s.opts.AccessChanged() },
			DeleteFunc: func(any) { s.opts.AccessChanged() },
		},
	})
	return p
}

// ZoneOf returns the zone of a node, empty if it is not known. It is safe for concurrent use.
func (s *Source) ZoneOf(node string) string {
	return labelOf(s.places.nodes, node, corev1.LabelTopologyZone)
}

// Closed reports whether a namespace is closed to clients of others. It is safe for concurrent use.
func (s *Source) Closed(namespace string) bool {
	return labelOf(s.places.namespaces, namespace, ClosedLabel) == "true"
}

// AnyClosed reports whether any namespace but one is closed. It is safe for concurrent use.
func (s *Source) AnyClosed(except string) bool {
	for _, namespace := range s.places.namespaces.GetStore().ListKeys() {
		if namespace != except && s.Closed(namespace) {
			return true
		}
	}
	return false
}

func labelOf(informer cache.SharedIndexInformer, name, label string) string {
	object, there, _ := informer.GetStore().GetByKey(name)
	if !there {
		return ""
	}
	return object.(*metav1.PartialObjectMetadata).Labels[label]
}
