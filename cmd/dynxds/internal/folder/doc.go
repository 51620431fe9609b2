// Package folder reads the folder that a control plane is described in: services,
// MeshHTTPRoute policies, denials and raw xDS resources, in files of YAML or JSON.
//
// A Reader turns the folder into a Content, an immutable value, or into an error
// that has every mistake of every file with its line. It reads only what changed
// since it was last asked, and parts that did not change stay the same pointers,
// so that what is built from them need not be built again. What a Content means
// for clients is the business of packages meshroute and publish.
//
// Files of the folder whose names end in .yaml, .yml or .json are read, symbolic
// links followed; hidden files, other files and subfolders are not.
package folder
