// Package folder reads the configuration folder of a control plane: services, MeshHTTPRoutes,
// GRPCRoutes, HTTPRoutes and xDS resources, in files of YAML or JSON.
//
// A Reader returns the folder's Content, an immutable value, or an error with every mistake of every
// file and its line. It reads only changed files, and unchanged parts stay the same pointers, so that
// what is built from them can be reused. Packages meshroute and publish interpret the content.
//
// A file counts once it is no longer being written: Read takes looks, and the change of a file is settled if
// two of them find the same (settle.go). Files that a swapped link replaces count together (place.go).
//
// Files of the folder whose names end in .yaml, .yml or .json are read, symbolic
// links followed; hidden files, other files and subfolders are not.
package folder
