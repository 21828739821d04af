// What this daemon has configured or is part of; pages for anything else are not shown.

import { signal } from "@preact/signals";
import type { ListWorkersResponse } from "#gen/cluster_service_pb";
import type { DataSource } from "#gen/data_service_pb";
import { call, cluster, data } from "./api";
import { CallError } from "./socket";
import { may, me } from "./store";

export const dataSources = signal<DataSource[]>([]);
export const isInCluster = signal(false);

// The user in whose name an admin looks at projects and data; a token of a user has its own.
export const actingUser = signal(sessionStorage.getItem("sandboxd.user") ?? "me");

export function userId(): string {
  return me.value?.userId || actingUser.value;
}

export async function findCapabilities(): Promise<void> {
  await Promise.all([findDataSources(), findCluster()]);
}

async function findDataSources(): Promise<void> {
  try {
    dataSources.value = (await call(data.listDataSources, { userId: userId() })).dataSources;
  } catch {
    dataSources.value = []; // a token that may not, or a daemon without sources
  }
}

async function findCluster(): Promise<void> {
  isInCluster.value = false;
  if (!may.oversee) return;
  try {
    await listWorkers();
  } catch {
    // the page of the cluster says why, if there is a cluster
  }
}

export async function listWorkers(): Promise<ListWorkersResponse> {
  try {
    const answer = await call(cluster.listWorkers, {});
    // A daemon alone is its only worker, and has no address.
    isInCluster.value = answer.workers.length > 1 || answer.workers.some((worker) => worker.address !== "");
    return answer;
  } catch (error) {
    // A daemon alone always knows.
    if (error instanceof CallError && error.reason === "OWNERSHIP_UNKNOWN") isInCluster.value = true;
    throw error;
  }
}

export function actAs(user: string): void {
  actingUser.value = user;
  sessionStorage.setItem("sandboxd.user", user);
  void findDataSources();
}
