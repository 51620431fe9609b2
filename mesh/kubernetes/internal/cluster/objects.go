package cluster

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// objects are those of a resource, with an informer for each namespace that is read. It is safe for concurrent use.
type objects[T runtime.Object] []cache.SharedIndexInformer

// follow adds the informers of a resource in the namespaces that are read, or in all if it has none. changed is called with each object that is added, updated or deleted, of updates with the old
// one too: a slice may be given to another Service.
func follow[T runtime.Object](s *Source, resource schema.GroupVersionResource, mayLack func(error) bool, example T, changed func(T)) (list objects[T]) {
	in := s.opts.Namespaces
	if resource == nodes || resource == namespaces {
		in = []string{""}
	}
	for _, namespace := range in {
		handler := cache.ResourceEventHandlerFuncs{
			AddFunc: func(object any) { changed(object.(T)) },
			UpdateFunc: func(before, after any) {
				changed(before.(T))
				changed(after.(T))
			},
			DeleteFunc: func(object any) {
				if last, missed := object.(cache.DeletedFinalStateUnknown); missed {
					object = last.Obj
				}
				changed(object.(T))
			},
		}
		list = append(list, s.watch.add(resource.GroupResource().String(), mayLack, s.opts.Clients.of(resource, namespace), example, handler))
	}
	return list
}

// all returns all objects.
func (o objects[T]) all() (list []T) {
	for _, informer := range o {
		for _, object := range informer.GetStore().List() {
			list = append(list, object.(T))
		}
	}
	return list
}

// get returns an object by its namespace and name, or by its name if it has no namespace, and nil if there is none.
func (o objects[T]) get(key string) (object T) {
	for _, informer := range o {
		if found, there, _ := informer.GetStore().GetByKey(key); there {
			return found.(T)
		}
	}
	return object
}

// ZoneOf returns the zone of a node, empty if it is not known. It is safe for concurrent use.
func (s *Source) ZoneOf(node string) string {
	return labelOf(s.nodes.get(node), corev1.LabelTopologyZone)
}

// labelOf returns a label of an object, which may be nil.
func labelOf(of *metav1.PartialObjectMetadata, label string) string {
	if of == nil {
		return ""
	}
	return of.Labels[label]
}
