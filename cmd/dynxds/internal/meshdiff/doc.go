// Package meshdiff says how two versions of a mesh differ, by kind of client: which clients get another
// resource, and what differs in it, route by route and field by field.
//
// Resource compares two versions of one resource; package site finds the resources of two meshes and the
// kinds of clients that get them. The result is a list of Changes, a value for JSON, which Text prints.
package meshdiff
